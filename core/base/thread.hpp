#pragma once

// Threads: how long their thread_local objects live, and threads that take no signals.

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// Whether LibTorch's thread_local objects of this thread can be used. Not after they were destroyed, as in
/// the thread that called `exit`, or returned from `main`, while functions of `atexit` and destructors of
/// static objects run. Ask before LibTorch's state of the thread is changed for the first time, too: later
/// objects are destroyed first.
TORCHTAP_API bool thread_lives() noexcept;

/// A number that no other thread of the process has or had.
TORCHTAP_API std::uint64_t number_of_thread() noexcept;

/// A guard that changes what LibTorch keeps for the thread and puts it back in its destructor. It is left as
/// it is where that cannot be done: in another thread, or when the thread has nothing left.
template <class Guard>
class InThread {
 public:
  template <class... Arguments>
  explicit InThread(Arguments&&... arguments)
      : thread_((static_cast<void>(thread_lives()), number_of_thread())),
        guard_(new Guard(std::forward<Arguments>(arguments)...)) {}
  ~InThread() {
    if (thread_ == number_of_thread() && thread_lives()) delete guard_;
  }
  InThread(const InThread&) = delete;
  InThread& operator=(const InThread&) = delete;

 private:
  const std::uint64_t thread_;
  Guard* const guard_;
};

/// Starts a thread that takes no signals, which are for the program's threads, but its own faults.
/// At most 15 letters of `name` are shown by the system. Throws `std::system_error` if it has no thread; the
/// caller's signals are as before in each case.
TORCHTAP_API std::thread start_thread(const char* name, std::function<void()> run);

}  // namespace torchtap::base
