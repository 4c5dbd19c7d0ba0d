// A thread inherits the mask of blocked signals, so its starter blocks them for a moment.
#include <pthread.h>
#include <signal.h>

#include <utility>

#include <torchtap/base/thread.hpp>

namespace torchtap::base {

std::thread start_thread(const char* name, std::function<void()> run) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  // Faults of the thread itself, for which the program may have a handler.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
    ::sigdelset(&all, fault);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(run));
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace torchtap::base
