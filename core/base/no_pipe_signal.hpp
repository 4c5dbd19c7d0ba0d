#pragma once

/// Blocks SIGPIPE while a thread writes to a pipe whose reader may have left.

#include <signal.h>

#include <torchtap/base/system.hpp>

namespace torchtap::base {

/// While it exists, writing to a pipe without a reader fails in this thread and does not end the process.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~NoPipeSignal() {
    if (!was_pending_) take_pending(set_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t set_{}, before_{};
  bool was_pending_ = false;
};

}  // namespace torchtap::base
