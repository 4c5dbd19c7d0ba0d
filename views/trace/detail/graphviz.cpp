// Runs Graphviz as a program: a crash, the memory it takes and endless layouts stay outside of this one.
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
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <torchtap/views/trace/detail/graphviz.hpp>

extern char** environ;  // NOLINT: POSIX' name

namespace torchtap::views::trace::detail {
namespace {

using Clock = std::chrono::steady_clock;

/// A nameless file: unlike a pipe it never makes one side wait for the other.
class Scratch {
 public:
  explicit Scratch(const std::string& where) : file_(std::tmpfile(), &std::fclose) {
    TORCH_CHECK(file_ != nullptr, where, "no temporary file can be made: ", std::strerror(errno), ".");
    ::fcntl(descriptor(), F_SETFD, FD_CLOEXEC);
  }

  int descriptor() const { return ::fileno(file_.get()); }

  void put(const std::string& text, const std::string& where) {
    const bool good = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                      std::fflush(file_.get()) == 0 && ::lseek(descriptor(), 0, SEEK_SET) == 0;
    TORCH_CHECK(good, where, "a temporary file cannot be written: ", std::strerror(errno), ".");
  }

  /// All that is in it.
  std::string text(const std::string& where) const {
    std::string read;
    for (std::array<char, 1 << 16> part;;) {
      const ssize_t size = ::pread(descriptor(), part.data(), part.size(), static_cast<::off_t>(read.size()));
      TORCH_CHECK(size >= 0, where, "a temporary file cannot be read: ", std::strerror(errno), ".");
      if (size == 0) return read;
      read.append(part.data(), static_cast<std::size_t>(size));
    }
  }
  /// Its first line.
  std::string line(const std::string& where) const {
    const std::string all = text(where);
    return all.substr(0, std::min(all.find('\n'), std::size_t{500}));
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// A program that runs; ended with this object.
class Child {
 public:
  /// Throws nothing; `error()` is that of the system, 0 if it runs.
  Child(const std::string& program, std::vector<std::string> arguments, int in, int out, int messages) {
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    ::posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    const std::array<int, 3> given{in, out, messages};
    std::array<int, 3> copies{};
    for (int i = 0; i < 3; ++i) {
      // Where the program has closed its standard descriptors, files may have their numbers.
      copies[i] = ::fcntl(given[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      ::posix_spawn_file_actions_adddup2(&actions, copies[i], i);
    }
    error_ = ::posix_spawnp(&id_, program.c_str(), &actions, nullptr, pointers.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    for (const int copy : copies) ::close(copy);
    if (error_ != 0) id_ = -1;
  }
  ~Child() {
    if (id_ < 0) return;
    ::kill(id_, SIGKILL);
    while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int error() const { return error_; }

  /// Whether it ended within `seconds`; then `status()` is what `waitpid` says.
  bool wait(double seconds) {
    const Clock::time_point begin = Clock::now();
    auto pause = std::chrono::milliseconds(1);
    for (;;) {
      const pid_t ended = ::waitpid(id_, &status_, WNOHANG);
      // A program that ignores SIGCHLD, or waits for all of its children, leaves no status: 0 is assumed.
      if (ended == id_ || (ended < 0 && errno == ECHILD)) {
        id_ = -1;
        return true;
      }
      if (std::chrono::duration<double>(Clock::now() - begin).count() >= seconds) return false;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(50));
    }
  }
  int status() const { return status_; }

 private:
  pid_t id_ = -1;
  int error_ = 0;
  int status_ = 0;
};

std::string ending(int status) {
  if (WIFSIGNALED(status)) return "was ended by signal " + std::to_string(WTERMSIG(status));
  return "failed with exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

std::string run_graphviz(const std::string& source, const std::string& format, double seconds,
                         const std::string& where) {
  Scratch input(where);
  input.put(source, where);
  const Scratch messages(where), picture(where);
  Child dot("dot", {"dot", "-T" + format}, input.descriptor(), picture.descriptor(), messages.descriptor());
  TORCH_CHECK(dot.error() == 0, where, "Graphviz' program `dot` cannot be run: ", std::strerror(dot.error()),
              ". Install Graphviz (apt install graphviz), or draw to a .dot file, which needs nothing.");
  if (!dot.wait(seconds)) return "";
  const std::string said = messages.line(where);
  const std::string reason = said.empty() ? "" : ": " + said;
  TORCH_CHECK(dot.status() == 0, where, "Graphviz ", ending(dot.status()), reason, ".");
  std::string drawn = picture.text(where);
  TORCH_CHECK(!drawn.empty(), where, "Graphviz drew nothing", reason, ".");
  return drawn;
}

}  // namespace torchtap::views::trace::detail
