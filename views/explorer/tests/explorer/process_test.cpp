// Children and other programs that a program with an explorer starts.
#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <torchtap/views/explorer/detail/file_run.hpp>

#include "client.hpp"

BOOST_AUTO_TEST_SUITE(process)

using namespace support;
using torchtap_test::TemporaryDirectory;

namespace {

/// Sockets and files that are open here, by what they are and not by their number. Asks /proc by path,
/// because other threads may open and close descriptors meanwhile.
std::set<std::pair<dev_t, ino_t>> open_here(mode_t kind) {
  std::set<std::pair<dev_t, ino_t>> found;
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    struct stat status {};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    if (::stat(link.c_str(), &status) == 0 && (status.st_mode & S_IFMT) == kind)
      found.emplace(status.st_dev, status.st_ino);
  }
  return found;
}

std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The exit status of a child that runs `function`; -1 if it was killed, after half a minute for one.
template <class Function>
int in_child(Function&& function) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    int status = 99;
    try {
      status = function();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Below those that the system gives to connections of other processes, and other ones in each test process.
unsigned free_port() {
  for (unsigned port = 20000 + static_cast<unsigned>(::getpid()) % 12000; port < 32768; ++port) {
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool free = ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    ::close(probe);
    if (free) return port;
  }
  return 0;
}

/// A model that is served and saved.
struct Program {
  TemporaryDirectory directory;
  nn::Sequential net{nn::Linear(6, 5), nn::ReLU(), nn::Linear(5, 3)};
  std::unique_ptr<explorer::Explorer> watched;
  unsigned port = 0;

  Program() {
    watched = std::make_unique<explorer::Explorer>(explorer::ExplorerOptions().every(1).save(path()));
    watched->attach(*net);
    train(3);
    port = free_port();
    watched->serve(explorer::ServeOptions().port(port));
  }
  std::string path() const { return directory / "run"; }
  std::string file() const { return parts::run_file_path(path()); }
  void train(int steps) {
    for (int step = 0; step < steps; ++step) {
      const at::Tensor loss = net->forward(torch::randn({4, 6})).pow(2).mean();
      loss.backward();
      watched->scalar("loss", loss);
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_forked_child_has_neither_sockets_nor_file_and_records_nothing) {
  Program program;
  const Client client(program.port);
  const auto sockets = open_here(S_IFSOCK), files = open_here(S_IFREG);
  BOOST_REQUIRE(sockets.size() >= 2U);
  const std::int64_t step = program.watched->step();
  const std::string before = contents(program.file());
  struct stat file {};
  BOOST_REQUIRE(::stat(program.file().c_str(), &file) == 0);
  const int status = in_child([&] {
    const auto mine = open_here(S_IFSOCK);
    if (mine.size() > 1) return 1;  // the client's, which is the program's own affair
    if (open_here(S_IFREG).count({file.st_dev, file.st_ino}) != 0) return 2;
    const int other = ::open("/dev/null", O_RDONLY);  // may have the number of one that was closed
    {
      const torch::NoGradGuard no_grad;
      for (int i = 0; i < 5; ++i) program.net->forward(torch::randn({4, 6}));
    }
    program.watched->scalar("loss", 1);
    program.watched->step(1000);
    if (program.watched->step() != step) return 3;
    program.watched.reset();
    return ::fcntl(other, F_GETFD) >= 0 ? 0 : 4;
  });
  BOOST_TEST(status == 0);
  BOOST_TEST((contents(program.file()) == before));
  // The parent goes on as if nothing had been.
  BOOST_TEST(Client(program.port).connected());
  program.train(2);
  check_no_errors(*program.watched);
  program.watched.reset();
  BOOST_TEST(parts::FileRun(program.path()).info().state == "finished");
  BOOST_TEST(parts::FileRun(program.path()).steps().second == 4);
}

BOOST_AUTO_TEST_CASE(a_child_that_outlives_its_parent_keeps_neither_port_nor_lock) {
  auto program = std::make_unique<Program>();
  int since[2], until[2];
  BOOST_REQUIRE(::pipe(since) == 0);
  BOOST_REQUIRE(::pipe(until) == 0);
  char byte = 0;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::close(until[1]);
    ::close(since[1]);
    ::_exit(::read(until[0], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(until[0]);
  ::close(since[1]);
  BOOST_REQUIRE(::read(since[0], &byte, 1) == 0);  // until the child runs, it has what its parent had
  ::close(since[0]);
  const unsigned port = program->port;
  const std::string path = program->path();
  {
    parts::FileRun run(path);
    BOOST_TEST(run.info().state == "running");
  }
  parts::models_of(*program->watched).first()->run()->save_to(nullptr);  // as if the process were killed
  {
    nn::Linear other(2, 2);
    explorer::Explorer free(explorer::ExplorerOptions().every(1));
    program->watched.reset();
    free.attach(*other);
    BOOST_TEST(free.serve(explorer::ServeOptions().port(port)).find(std::to_string(port)) !=
               std::string::npos);
    parts::FileRun run(path);
    BOOST_TEST(run.info().state == "crashed");
  }
  ::close(until[1]);
  int status = -1;
  ::waitpid(child, &status, 0);
  BOOST_TEST(status == 0);
}

/// The server's thread may hold any of the run's mutexes when the process forks.
BOOST_AUTO_TEST_CASE(forks_while_the_server_works_do_not_hang) {
  Served served;
  std::atomic<bool> done{false};
  std::thread asker([&] {
    while (!done) {
      served.get("/api/v1/runs/r0/series");
      served.get("/api/v1/runs/r0/graph");
    }
  });
  for (int i = 0; i < 40; ++i) {
    const int status = in_child([&] {
      const torch::NoGradGuard no_grad;
      served.net->forward(torch::randn({4, 6}));
      served.watched.scalar("loss", i);
      served.server.reset();
      return 0;
    });
    BOOST_REQUIRE(status == 0);
  }
  done = true;
  asker.join();
  BOOST_TEST(served.get("/api/v1/runs").status == 200);
}

BOOST_AUTO_TEST_CASE(programs_that_are_started_get_neither_sockets_nor_file) {
  const Program program;
  const Client client(program.port);
  const TemporaryDirectory directory;
  const std::string list = directory / "open";
  BOOST_REQUIRE(std::system(("ls -l /proc/self/fd >" + list).c_str()) == 0);
  const std::string open = contents(list);
  BOOST_TEST(open.find(list) != std::string::npos);
  BOOST_TEST(open.find("socket:") == std::string::npos);
  BOOST_TEST(open.find("run.tapx") == std::string::npos);
  BOOST_TEST(open.find("eventpoll") == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
