// Processes of ranks: pipes, and a time limit. Ranks of one scenario are forked by a process that has loaded
// LibTorch.
#include "launch.hpp"

#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/support.hpp"

namespace torchtap_test {
namespace {

using Clock = std::chrono::steady_clock;

/// Boost.Test's own assertions are for one thread.
void require(bool is_true, const char* what) {
  if (!is_true) throw std::runtime_error(what);
}

struct Process {
  pid_t pid = -1;
  int out = -1;
  std::string text;
  bool ended = false;
};

/// A pipe, of which the process gets the end that is read.
int made_pipe(Process& process) {
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, "no pipe");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  process.out = ends[0];
  return ends[1];
}

/// `out` becomes its output; it inherits `others`.
pid_t started(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables,
              int out, const std::vector<int>& others = {}) {
  // What execve takes is made before the fork: the child of a program with threads may not allocate.
  std::vector<std::string> environment;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string one = *each;
    if (variables.count(one.substr(0, one.find('='))) == 0) environment.push_back(one);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  std::vector<char*> arguments, settings;
  for (const auto& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
  for (const auto& one : environment) settings.push_back(const_cast<char*>(one.c_str()));
  arguments.push_back(nullptr);
  settings.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out, STDOUT_FILENO);
    for (const int fd : others) ::fcntl(fd, F_SETFD, 0);
    ::execve(arguments[0], arguments.data(), settings.data());
    ::_exit(127);
  }
  return pid;
}

/// All ranks, forked by one process that has loaded LibTorch and ends at once, so that they become ours.
void start_together(std::vector<Process>& processes, const std::string& scenario,
                    std::map<std::string, std::string> variables) {
  static const bool adopts = ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
  require(adopts, "orphans are not adopted");
  std::vector<int> outs;
  std::string list;
  for (auto& process : processes) {
    outs.push_back(made_pipe(process));
    list += std::to_string(outs.back()) + " ";
  }
  variables["RANKS_OUT"] = list;
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, "no pipe");
  const pid_t first = started({TORCHTAP_TEST_RANK, scenario}, variables, ends[1], outs);
  ::close(ends[1]);
  for (const int out : outs) ::close(out);
  for (auto& process : processes)
    require(::read(ends[0], &process.pid, sizeof process.pid) == sizeof process.pid, "a rank was not forked");
  ::close(ends[0]);
  ::waitpid(first, nullptr, 0);
}

/// Reads what is there; false at the end.
bool read_some(Process& process) {
  char bytes[4096];
  for (;;) {
    const ssize_t count = ::read(process.out, bytes, sizeof bytes);
    if (count > 0) process.text.append(bytes, static_cast<std::size_t>(count));
    if (count == 0) return false;
    if (count < 0) return true;
  }
}

void collect(Process& process, RankResult& result, Clock::time_point begin) {
  int status = 0;
  if (process.ended || ::waitpid(process.pid, &status, WNOHANG) != process.pid) return;
  process.ended = true;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  require(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
              ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0,
          "no port is free");
  ::close(fd);
  return ntohs(address.sin_port);
}

std::string RankResult::at(const std::string& key) const {
  for (const auto& line : lines) {
    if (line.compare(0, key.size() + 1, key + " ") == 0) return line.substr(key.size() + 1);
  }
  BOOST_ERROR("no line begins with \"" << key << "\"");
  for (const auto& line : lines) BOOST_TEST_MESSAGE("  " << line);
  return "";
}

bool RankResult::has(const std::string& key) const {
  for (const auto& line : lines) {
    if (line == key || line.compare(0, key.size() + 1, key + " ") == 0) return true;
  }
  return false;
}

std::vector<RankResult> run_ranks(const Launch& launch) {
  const TemporaryDirectory folder;
  const std::string port = std::to_string(free_port());
  std::vector<Process> processes(static_cast<std::size_t>(launch.size));
  const auto begin = Clock::now();
  std::map<std::string, std::string> variables{{"WORLD_SIZE", std::to_string(launch.size)},
                                               {"MASTER_ADDR", "127.0.0.1"},
                                               {"MASTER_PORT", port},
                                               {"RANKS_LINK", launch.link},
                                               {"RANKS_FILE", folder / "store"},
                                               {"OMP_NUM_THREADS", "1"}};
  for (const auto& [name, value] : launch.variables) variables[name] = value;
  if (launch.others.empty()) {
    start_together(processes, launch.scenario, variables);
  } else {
    for (int rank = 0; rank < launch.size; ++rank) {
      variables["RANK"] = std::to_string(rank);
      const auto other = launch.others.find(rank);
      const std::vector<std::string> command =
          other != launch.others.end() ? other->second
                                       : std::vector<std::string>{TORCHTAP_TEST_RANK, launch.scenario};
      auto& process = processes[static_cast<std::size_t>(rank)];
      const int out = made_pipe(process);
      process.pid = started(command, variables, out);
      ::close(out);
    }
  }
  std::vector<RankResult> results(processes.size());
  // Until all have ended, or those that are left are stopped.
  const auto limit = begin + launch.limit;
  bool killed = false, late = false;
  for (;;) {
    std::size_t running = 0, stopped = 0;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      read_some(processes[i]);
      collect(processes[i], results[i], begin);
      if (processes[i].ended) continue;
      ++running;
      siginfo_t state{};
      if (::waitid(P_PID, static_cast<id_t>(processes[i].pid), &state, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
          state.si_pid == processes[i].pid) {
        ++stopped;
      }
    }
    if (running == 0) break;
    if (!killed && (Clock::now() > limit || running == stopped)) {
      late = running != stopped;
      for (const auto& process : processes) {
        if (!process.ended) ::kill(process.pid, SIGKILL);
      }
      killed = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (std::size_t i = 0; i < processes.size(); ++i) {
    read_some(processes[i]);
    ::close(processes[i].out);
    std::istringstream stream(processes[i].text);
    for (std::string line; std::getline(stream, line);) results[i].lines.push_back(line);
  }
  require(!late, "ranks still ran at the limit");
  return results;
}

std::vector<std::vector<RankResult>> run_together(const std::vector<Launch>& launches) {
  std::vector<std::vector<RankResult>> results(launches.size());
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i = next++; i < launches.size(); i = next++) results[i] = run_ranks(launches[i]);
  };
  auto other = std::async(std::launch::async, run);
  run();
  other.get();
  return results;
}

bool with_gloo() {
  return TORCHTAP_TEST_GLOO != 0;
}

}  // namespace torchtap_test
