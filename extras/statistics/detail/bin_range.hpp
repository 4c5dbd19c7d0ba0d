#pragma once

/// Computes on the CPU the range of a histogram that grows with the data.

#include <cstdint>
#include <vector>

namespace torchtap::statistics::detail {

/// Bins as cells of a grid: bin i is cell start + i of width 2^exponent.
struct BinRange {
  std::int64_t exponent = 0, start = 0;

  /// The finest grid that covers [min, max] with `bins` bins; depends on nothing else. Without finite data
  /// (min > max), the grid of the point 0.
  static BinRange covering(double min, double max, std::int64_t bins);

  bool operator==(const BinRange& other) const noexcept {
    return exponent == other.exponent && start == other.start;
  }

  /// [bins + 1]
  std::vector<double> edges(std::int64_t bins) const;
  /// Moves the counts of these bins to the bins of `coarser`, in each of `kept` rows of `stride` counters.
  void regroup(const BinRange& coarser, std::int64_t bins, std::int64_t kept, std::int64_t stride,
               std::int64_t* counters) const;
};

}  // namespace torchtap::statistics::detail
