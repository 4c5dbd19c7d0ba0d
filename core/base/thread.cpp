// Starts threads that take no signals: a thread inherits the mask of its starter, which blocks them for a
// moment.
#include <c10/util/ThreadLocalDebugInfo.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <utility>

#include <torchtap/base/system.hpp>
#include <torchtap/base/thread.hpp>

namespace torchtap::base {

bool thread_lives() noexcept {
  static thread_local bool is_over = false;  // can be read until the thread's memory goes
  struct End {
    // LibTorch's object is made first, so it is destroyed after this one.
    End() { static_cast<void>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO)); }
    ~End() {
      is_over = true;
      // LibTorch puts a thread's state back after backward, so scopes that were left in it are there again.
      // Operations that run later would read what was destroyed.
      if (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO) != nullptr)
        c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
    }
  };
  static thread_local const End end;
  static_cast<void>(end);
  return !is_over;
}

std::uint64_t number_of_thread() noexcept {
  static std::atomic<std::uint64_t> last{0};
  static thread_local const std::uint64_t mine = ++last;
  return mine;
}

std::thread start_thread(const char* name, std::function<void()> run) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // Faults of the thread itself, for which the program may have a handler.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread([name, run = std::move(run)] {
      name_this_thread(name);
      run();
    });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace torchtap::base
