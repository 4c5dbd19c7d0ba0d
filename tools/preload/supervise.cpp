#include "supervise.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>

namespace torchtap::tools::preload {
namespace {

/// A process of the same group that only reports which signals it gets. A signal that also reaches it was
/// sent to the whole group and need not be forwarded; the signal itself does not show that.
class Witness {
 public:
  Witness() {
    if (::pipe2(pipe_, O_CLOEXEC) != 0) return;  // the program does not get it
    const pid_t launcher = ::getpid();
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != launcher) ::_exit(0);
      ::close(pipe_[0]);
      sigset_t all;
      ::sigfillset(&all);
      for (;;) {
        siginfo_t info;
        const int number = ::sigwaitinfo(&all, &info);
        if (number <= 0) continue;
        const auto byte = static_cast<unsigned char>(number);
        if (::write(pipe_[1], &byte, 1) != 1) ::_exit(0);
      }
    }
    ::close(pipe_[1]);
  }
  ~Witness() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
    ::close(pipe_[0]);
  }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  /// Whether it received `number` too; a signal to a group reaches all of it within moments.
  bool got(int number) {
    if (process_ <= 0) return false;
    pollfd wait{pipe_[0], POLLIN, 0};
    while (::poll(&wait, 1, 50) > 0 && (wait.revents & POLLIN) != 0) {
      unsigned char byte = 0;
      if (::read(pipe_[0], &byte, 1) != 1) return false;
      if (byte == number) return true;
    }
    return false;
  }
  pid_t process() const { return process_; }

 private:
  int pipe_[2] = {-1, -1};
  pid_t process_ = -1;
};

/// The state in /proc: 'T' is stopped, 'Z' has ended.
char state_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name = text.rfind(')');
  return name == std::string::npos || name + 2 >= text.size() ? 'X' : text[name + 2];
}

std::string name_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

/// Stops this process while the program is stopped. Whoever continues either of them continues both: another
/// process looks at the program meanwhile.
void stop_with(pid_t process) {
  const pid_t launcher = ::getpid(), looks = ::fork();
  if (looks == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    constexpr timespec pause{0, 20000000};
    while (state_of(process) == 'T') ::nanosleep(&pause, nullptr);
    ::kill(launcher, SIGCONT);
    ::_exit(0);
  }
  ::kill(launcher, SIGSTOP);
  if (looks > 0) {
    ::kill(looks, SIGKILL);
    while (::waitpid(looks, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (state_of(process) == 'T') ::kill(process, SIGCONT);
}

}  // namespace

Ended supervise(const std::function<void()>& program,
                const std::function<std::chrono::milliseconds()>& meanwhile) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  struct sigaction child {
  }, child_before{};
  child.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &child, &child_before);  // with SIGCHLD ignored, no child could be waited for

  Witness witness;
  const pid_t launcher = ::getpid();
  const pid_t process = ::fork();
  if (process < 0)
    throw std::runtime_error(std::string("cannot start a process: ") + std::strerror(errno) + ".");
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // killing the launcher must kill the program
    if (::getppid() != launcher) ::_exit(127);
    ::sigaction(SIGCHLD, &child_before, nullptr);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    program();
    ::_exit(127);
  }

  ::signal(SIGXFSZ, SIG_IGN);  // to write too large a file is an error that is said
  timespec pause{0, 100000000};
  for (;;) {
    siginfo_t info;
    const int number = meanwhile ? ::sigtimedwait(&all, &info, &pause) : ::sigwaitinfo(&all, &info);
    if (number < 0) {
      if (meanwhile) pause.tv_nsec = std::chrono::nanoseconds(meanwhile()).count();
      continue;
    }
    if (number == SIGCHLD) {
      const std::string name = name_of(process);  // also of a process that has ended, until it is waited for
      int status = 0;
      if (::waitpid(process, &status, WNOHANG | WUNTRACED) != process) continue;
      if (!WIFSTOPPED(status)) {
        ::sigprocmask(SIG_SETMASK, &before, nullptr);
        return {process, status, name};
      }
      stop_with(process);
      continue;
    }
    // The terminal signals the whole group; and writing to a pipe or a file signals this process.
    if (info.si_code == SI_KERNEL || info.si_pid == launcher || witness.got(number)) continue;
    ::kill(process, number);
  }
}

void end_as(const Ended& program) {
  if (WIFEXITED(program.status)) std::_Exit(WEXITSTATUS(program.status));
  const int number = WTERMSIG(program.status);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);  // the program has already dumped its core
  ::signal(number, SIG_DFL);
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, number);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(number);
  std::_Exit(128 + number);
}

}  // namespace torchtap::tools::preload
