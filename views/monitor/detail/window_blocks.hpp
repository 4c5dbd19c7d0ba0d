#pragma once

// The counts of a tensor in a window.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include <torchtap/core/value.hpp>
#include <torchtap/reductions/blocks.hpp>

namespace torchtap::views::monitor::detail {

/// The monotonic clock, in nanoseconds.
std::int64_t clock_ns() noexcept;

/// Nanoseconds that this thread was on the processor. For costs that are compared with a forward's time: on a
/// busy machine a forward waits for the processor several times, and folding seldom does.
std::int64_t cpu_ns() noexcept;

/// Nanoseconds, by `cpu_ns`, that this thread has spent in `WindowBlocks::update`.
std::int64_t& folded_here() noexcept;

/// `reductions::Blocks` of a window, with a clock around it. Its results have one more: "order", by
/// which the tensors of a window are in the order in which they came first.
class WindowBlocks {
 public:
  void update(const at::Tensor& sample);
  void check(const at::Tensor& sample) const { blocks_.check(sample); }
  void merge(const WindowBlocks& other);
  std::int64_t count() const { return blocks_.count(); }
  core::Results results() const;
  std::string describe() const { return blocks_.describe(); }
  WindowBlocks fresh() const { return {}; }

 private:
  reductions::Blocks blocks_{256};  // as drift compares them one by one with the reference's
  std::int64_t order_ = 0;
};

}  // namespace torchtap::views::monitor::detail
