#include <c10/util/Exception.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <torchtap/views/program/program.hpp>

extern char** environ;  // NOLINT: POSIX' name

namespace torchtap::views::program {

Scratch::Scratch(std::string where) : where_(std::move(where)), file_(std::tmpfile(), &std::fclose) {
  TORCH_CHECK(file_ != nullptr, where_, "no temporary file can be made: ", std::strerror(errno), ".");
  ::fcntl(descriptor(), F_SETFD, FD_CLOEXEC);
}

int Scratch::descriptor() const {
  return ::fileno(file_.get());
}

void Scratch::put(const std::string& text) {
  const bool good = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                    std::fflush(file_.get()) == 0 && ::lseek(descriptor(), 0, SEEK_SET) == 0;
  TORCH_CHECK(good, where_, "a temporary file cannot be written: ", std::strerror(errno), ".");
}

std::string Scratch::text() const {
  std::string read;
  for (std::array<char, 1 << 16> part;;) {
    const ssize_t size = ::pread(descriptor(), part.data(), part.size(), static_cast<::off_t>(read.size()));
    TORCH_CHECK(size >= 0, where_, "a temporary file cannot be read: ", std::strerror(errno), ".");
    if (size == 0) return read;
    read.append(part.data(), static_cast<std::size_t>(size));
  }
}

std::string Scratch::first_line(std::size_t most) const {
  const std::string all = text();
  return all.substr(0, std::min(all.find('\n'), most));
}

Program::Program(std::vector<std::string> command, int in, int out, int messages, CtrlC ctrl_c) {
  std::vector<char*> pointers;
  pointers.reserve(command.size() + 1);
  for (std::string& word : command) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  if (ctrl_c == CtrlC::is_ours) {  // the terminal signals our group alone
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    ::posix_spawnattr_setpgroup(&attributes, 0);
  }
  ::posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  const std::array<int, 3> given{in, out, messages};
  std::array<int, 3> copies{};
  for (int i = 0; i < 3; ++i) {
    // Files may have the numbers of standard descriptors that the program has closed.
    copies[i] = ::fcntl(given[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    ::posix_spawn_file_actions_adddup2(&actions, copies[i], i);
  }
  error_ = ::posix_spawnp(&id_, pointers.front(), &actions, &attributes, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  for (const int copy : copies) ::close(copy);
  if (error_ != 0) id_ = -1;
}

Program::~Program() {
  if (id_ < 0) return;
  ::kill(id_, SIGKILL);
  while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool Program::wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  auto pause = std::chrono::milliseconds(1);
  while (id_ >= 0) {
    const pid_t ended = ::waitpid(id_, &status_, WNOHANG);
    if (ended == id_ || (ended < 0 && errno == ECHILD)) {
      id_ = -1;
      break;
    }
    if (std::chrono::duration<double>(Clock::now() - begin).count() >= seconds) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
  return true;
}

std::string Program::ending() const {
  if (WIFSIGNALED(status_)) return "was ended by signal " + std::to_string(WTERMSIG(status_));
  return "failed with exit status " + std::to_string(WEXITSTATUS(status_));
}

}  // namespace torchtap::views::program
