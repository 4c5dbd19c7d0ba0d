#pragma once

// The state of a thread in which `ExploreMode` follows forwards.

#include <atomic>
#include <memory>
#include <vector>

#include "explore_mode.hpp"

namespace torchtap::tools::preload {

/// The forwards that a thread runs, the innermost last. Scopes have to be closed in this order.
struct ExploreMode::Thread {
  ExploreMode* owner = nullptr;
  std::vector<std::unique_ptr<Running>> running;
  bool in_backward = false;                     // its forwards ended as a backward began
  std::atomic<bool> backward_elsewhere{false};  // in a thread of LibTorch's, as for other devices

  /// This thread's entry; null if it runs no forward.
  static Thread* here() noexcept;
  /// In a forked child: the parent continues the forwards.
  void leave_to_parent() noexcept;
};

}  // namespace torchtap::tools::preload
