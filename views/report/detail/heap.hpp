#pragma once

// Counts LibTorch's allocations: of the CPU by an allocator around the present one, of other devices by their
// reports to profilers.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>
#include <optional>

#include <torchtap/base/thread.hpp>

namespace torchtap::views::report::detail {

/// Bytes in use, counted from the moment at which watching began.
struct HeapState {
  std::int64_t held = 0;
  std::int64_t peak = 0;  // since the last `read`
  std::int64_t allocations = 0;
};

/// While it lives, allocations of all threads are counted. One at a time.
class HeapWatch {
 public:
  /// Null if another one watches.
  static std::unique_ptr<HeapWatch> begin(bool other_devices);
  ~HeapWatch();
  HeapWatch(const HeapWatch&) = delete;
  HeapWatch& operator=(const HeapWatch&) = delete;

  /// The state now; the next peak counts from here.
  static HeapState read();
  /// Whether a profiler of this thread has the place where other devices report.
  bool displaced() const noexcept { return displaced_; }

  /// While it lives, this thread's allocations count as held and as nothing else.
  class Paused {
   public:
    Paused() noexcept;
    ~Paused();
    Paused(const Paused&) = delete;
    Paused& operator=(const Paused&) = delete;

   private:
    bool before_;
  };

 private:
  explicit HeapWatch(bool other_devices);

  c10::Allocator* before_ = nullptr;
  std::optional<base::InThread<c10::DebugInfoGuard>> reports_;
  bool displaced_ = false;
};

}  // namespace torchtap::views::report::detail
