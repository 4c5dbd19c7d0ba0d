#pragma once

// How often a run records; a page may change it.

#include <atomic>
#include <cstdint>

namespace torchtap::views::explorer::detail {

/// Any thread may read and change it.
class Control {
 public:
  explicit Control(std::int64_t every) noexcept : every_(every) {}

  /// Every how many steps; 0 for as many as `ExplorerOptions::overhead` allows.
  std::int64_t every() const noexcept { return every_; }
  bool paused() const noexcept { return paused_; }
  void set_every(std::int64_t steps) noexcept { every_ = steps; }
  void pause(bool paused) noexcept { paused_ = paused; }

 private:
  std::atomic<std::int64_t> every_;
  std::atomic<bool> paused_{false};
};

}  // namespace torchtap::views::explorer::detail
