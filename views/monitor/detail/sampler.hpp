#pragma once

// Chooses the forwards that are sampled, so that the monitor takes its share of a forward's time and no more.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace torchtap::views::monitor::detail {

/// Samples every N-th forward on average: N = what a sampled forward costs beyond any other / (`cost` × time
/// of a forward − what any forward costs), from 1 to 1024, each a median of the last 32.
///
/// The costs are clocks around the monitor's own code, not differences of forwards: forwards of a busy
/// machine differ by more than the monitor takes. They tick while the thread is on the processor. A hash of
/// its number decides whether a forward is sampled, so that periodic traffic is seen evenly. Any thread may
/// call any member; nothing allocates.
class Sampler {
 public:
  static constexpr std::int64_t most = 1024;

  /// From a `cost` of 1 on every forward is sampled.
  explicit Sampler(double cost) noexcept : cost_(cost) {}

  bool wants(std::int64_t number) const noexcept;
  /// A forward of `forward_ns` without the monitor's `own_ns` has ended.
  void note(bool sampled, std::int64_t forward_ns, std::int64_t own_ns) noexcept;
  /// N.
  std::int64_t period() const noexcept { return period_.load(std::memory_order_relaxed); }

 private:
  class Last {
   public:
    void add(std::int64_t value) noexcept;
    /// 0 if there are none.
    double median() const noexcept;

   private:
    static constexpr std::size_t size = 32;
    std::array<std::atomic<std::int64_t>, size> values_{};
    std::atomic<std::size_t> added_{0};
  };
  void adapt() noexcept;

  const double cost_;
  Last forward_, sampled_, unsampled_;
  std::atomic<std::int64_t> period_{1};
};

}  // namespace torchtap::views::monitor::detail
