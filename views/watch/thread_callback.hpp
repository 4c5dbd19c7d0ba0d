#pragma once

/// Callbacks of a thread for the functions that LibTorch records.

#include <cstdint>

#include <torchtap/base/api.hpp>

namespace torchtap::views::watch {

/// A callback that `at::addThreadLocalCallback` added in this thread, until it is destroyed. Any thread may
/// do that, but only its own can remove the callback: its next `sweep` does; until then it may be called.
class TORCHTAP_API ThreadCallback {
 public:
  explicit ThreadCallback(std::uint64_t handle);
  ~ThreadCallback();
  ThreadCallback(const ThreadCallback&) = delete;
  ThreadCallback& operator=(const ThreadCallback&) = delete;

  /// Removes callbacks of this thread that others destroyed. Takes no lock where there are none at all.
  static void sweep();

 private:
  const std::uint64_t thread_;
  const std::uint64_t handle_;
};

}  // namespace torchtap::views::watch
