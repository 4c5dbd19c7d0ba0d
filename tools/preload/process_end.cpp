#include "process_end.hpp"

#include <ATen/Parallel.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <thread>

#include <torchtap/base/thread.hpp>

#include "agent.hpp"
#include "waiter.hpp"

namespace torchtap::tools::preload {
namespace {

/// A semaphore rather than a pipe: programs that become daemons close all descriptors.
struct Watch {
  sem_t wake;
  std::atomic<bool> started{false};
  std::atomic<pid_t> process{0};  // the process that owns the watching thread; 0 if there is none
  std::atomic<bool> requested{false};
  std::atomic<int> signal{0};  // the signal that ends the process
  std::atomic<bool> finished{false}, given_up{false};
  clockid_t clock{};  // CPU time of the watching thread
  double every = 0;
};
Watch the_watch;

constexpr int kEndingSignals[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGPIPE,
                                  SIGALRM, SIGXCPU, SIGUSR1, SIGUSR2};
constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

thread_local bool is_watcher = false;
std::atomic<bool> is_bad_end{false};

bool somebody_watches() noexcept {
  return the_watch.process.load() == ::getpid();
}

void wait_for_request() noexcept {
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  if (the_watch.every > 0) {
    double whole = 0;
    const double part = std::modf(the_watch.every, &whole);
    until.tv_sec += static_cast<std::time_t>(whole);
    until.tv_nsec += static_cast<long>(part * 1e9);
    if (until.tv_nsec >= 1000000000) {
      ++until.tv_sec;
      until.tv_nsec -= 1000000000;
    }
  }
  while (!the_watch.requested) {
    const int status =
        the_watch.every > 0 ? ::sem_timedwait(&the_watch.wake, &until) : ::sem_wait(&the_watch.wake);
    if (status != 0 && errno == ETIMEDOUT) return;
  }
}

/// Saves in a separate thread: saving allocates and locks, which is forbidden in a signal handler, where
/// `_exit` may be called.
void keep_watch() {
  is_watcher = true;
  for (;;) {
    wait_for_request();
    if (the_watch.requested) break;
    snapshot();
  }
  finish();
  the_watch.finished = true;
  if (const int number = the_watch.signal) {
    ::signal(number, SIG_DFL);
    ::kill(::getpid(), number);
  }
}

void request() noexcept {
  the_watch.requested = true;
  ::sem_post(&the_watch.wake);
}

/// Waits until the watching thread has saved everything. Gives up, for good, once that thread has not run for
/// ten seconds, as it may be waiting for a lock of this thread. Async-signal-safe.
void wait_until_finished() noexcept {
  constexpr int kPatience = 5000;
  if (the_watch.given_up) return;
  timespec before{};
  const timespec pause{0, 2000000};
  for (int idle = 0; !the_watch.finished && idle < kPatience; ++idle) {
    ::nanosleep(&pause, nullptr);
    timespec now{};
    ::clock_gettime(the_watch.clock, &now);
    if (now.tv_sec != before.tv_sec || now.tv_nsec != before.tv_nsec) idle = 0;
    before = now;
  }
  the_watch.given_up = !the_watch.finished;
}

void on_signal(int number) {
  const int error = errno;
  if (!somebody_watches() || is_watcher) {
    ::signal(number, SIG_DFL);
    ::raise(number);  // delivered when this handler returns
  } else {
    int none = 0;
    the_watch.signal.compare_exchange_strong(none, number);
    request();
    // SIGPIPE comes from a write of this thread, which would return now.
    if (number == SIGPIPE) {
      wait_until_finished();
      ::signal(number, SIG_DFL);
      ::raise(number);
    }
  }
  errno = error;
}

/// Whether this thread is in a crash handler, most of which end the process by `_exit` or `abort`. Memory
/// cannot be trusted then.
bool handles_crash() noexcept {
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (const int number : kCrashes) {
    if (::sigismember(&blocked, number) == 1) return true;
  }
  return false;
}

/// Called when the process is about to end.
void finish_first() noexcept {
  if (is_watcher || !is_active() || handles_crash()) return;
  if (is_bad_end) watch(0);  // another thread, if there is none
  if (somebody_watches()) {
    request();
    wait_until_finished();
  } else {
    finish();
  }
}

}  // namespace

void watch(double every) noexcept {
  if (the_watch.started.exchange(true)) return;
  the_watch.every = every;
  the_watch.requested = false;
  the_watch.signal = 0;
  the_watch.finished = the_watch.given_up = false;
  // Exits inside of the C library come by none of our functions. A function that is registered now runs
  // before the objects that the program and LibTorch have made so far are destroyed. That includes LibTorch's
  // pool of threads, whose lock can never be had afterwards.
  if (!is_bad_end) {
    static_cast<void>(at::get_num_threads());
    std::atexit(end_normally);
  }
  if (::sem_init(&the_watch.wake, 0, 0) != 0) return;
  std::thread thread;
  try {
    thread = base::start_thread("torchtap-watch", keep_watch);
  } catch (const std::exception&) {
    return;
  }
  ::pthread_getcpuclockid(thread.native_handle(), &the_watch.clock);
  thread.detach();
  the_watch.process = ::getpid();
  for (const int number : kEndingSignals) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = on_signal;
    ours.sa_flags = SA_RESTART;
    ::sigemptyset(&ours.sa_mask);
    ::sigaction(number, &ours, nullptr);
  }
}

void end_normally() noexcept {
  if (!is_active()) return;
  // In the handler of a crash this thread may hold any lock, as at a bad end.
  if (!somebody_watches() || is_watcher || !handles_crash()) return finish();
  request();
  wait_until_finished();
}

void end_badly() noexcept {
  if (!is_active()) return;
  is_bad_end = true;
  finish_first();
}

bool ends_badly() noexcept {
  return is_bad_end;
}

void forget_watch() noexcept {
  the_watch.process = 0;
  the_watch.started = false;
}

void await_ends() {
  ::torchtap_preload_at_ends({end_normally, finish_first, end_badly});
}

}  // namespace torchtap::tools::preload
