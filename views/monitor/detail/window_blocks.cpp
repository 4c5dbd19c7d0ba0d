// Counts, with a clock around it.
#include <ATen/ops/scalar_tensor.h>
#include <time.h>

#include <algorithm>
#include <atomic>

#include <torchtap/views/monitor/detail/window_blocks.hpp>

namespace torchtap::views::monitor::detail {

namespace {

std::int64_t read_clock(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

std::int64_t clock_ns() noexcept {
  return read_clock(CLOCK_MONOTONIC);
}

std::int64_t cpu_ns() noexcept {
  return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

std::int64_t& folded_here() noexcept {
  static thread_local std::int64_t nanoseconds = 0;
  return nanoseconds;
}

void WindowBlocks::update(const at::Tensor& sample) {
  static std::atomic<std::int64_t> last{0};
  const std::int64_t began = cpu_ns();
  if (order_ == 0) order_ = ++last;
  blocks_.update(sample);
  folded_here() += cpu_ns() - began;
}

void WindowBlocks::merge(const WindowBlocks& other) {
  blocks_.merge(other.blocks_);
  if (other.order_ != 0) order_ = order_ == 0 ? other.order_ : std::min(order_, other.order_);
}

core::Results WindowBlocks::results() const {
  core::Results results = blocks_.results();
  if (!results.empty()) results.set("order", at::scalar_tensor(order_, at::kLong));
  return results;
}

}  // namespace torchtap::views::monitor::detail
