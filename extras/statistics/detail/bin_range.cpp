// Finds the finest range that covers the data, and moves counts to the bins of a coarser range.

#include <algorithm>
#include <cmath>
#include <cstring>

#include <torchtap/statistics/detail/bin_range.hpp>

// `Histogram` does the same with ATen's operations where the data is on a device; both give the same bins.
namespace torchtap::statistics::detail {
namespace {

constexpr std::int64_t kLowest = -1022;  // least exponent: the smallest normal float64

/// 2^e for e in [-1022, 1023].
double power_of_two(std::int64_t e) {
  const std::uint64_t bits = static_cast<std::uint64_t>(e + 1023) << 52;
  double result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

/// x * 2^e in two steps, as 2^e alone may be out of range.
double scaled(double x, std::int64_t e) {
  const std::int64_t half = e >> 1;
  return x * power_of_two(half) * power_of_two(e - half);
}

/// The index of the cell of width 2^e that holds x. A negative number may be too small to be scaled.
std::int64_t cell(double x, std::int64_t e) {
  const double index = std::floor(scaled(x, -e));
  return x < 0 && index == 0 ? -1 : static_cast<std::int64_t>(index);
}

/// The exponent k with x in [2^(k-1), 2^k).
std::int64_t exponent_of(double x) {
  int exponent = 0;
  (void)std::frexp(x, &exponent);
  return exponent;
}

}  // namespace

BinRange BinRange::covering(double min, double max, std::int64_t bins) {
  const double low = min > max ? 0.0 : min, high = min > max ? 0.0 : max;
  // Cell numbers must be integers that float64 can hold: the width is at least 2^-52 of the largest
  // magnitude.
  const double magnitude = std::max(std::abs(low), std::abs(high));
  const std::int64_t least = magnitude == 0 ? kLowest : exponent_of(magnitude) - 52;
  // A width w must exceed range/bins, and range/(bins - 1) <= w is enough: three candidates, plus one below
  // for rounding.
  const double share = high / static_cast<double>(bins) - low / static_cast<double>(bins);
  const std::int64_t first =
      std::clamp<std::int64_t>(std::max(share == 0 ? kLowest : exponent_of(share) - 1, least), kLowest, 1024);
  std::int64_t exponent = first;
  while (exponent < first + 3 && cell(high, exponent) - cell(low, exponent) >= bins) ++exponent;
  return {exponent, cell(low, exponent)};
}

std::vector<double> BinRange::edges(std::int64_t bins) const {
  std::vector<double> edges(static_cast<std::size_t>(bins + 1));
  for (std::int64_t i = 0; i <= bins; ++i)
    edges[static_cast<std::size_t>(i)] = scaled(static_cast<double>(start + i), exponent);
  return edges;
}

void BinRange::regroup(const BinRange& coarser, std::int64_t bins, std::int64_t kept, std::int64_t stride,
                       std::int64_t* counters) const {
  const std::int64_t steps = std::clamp<std::int64_t>(coarser.exponent - exponent, 0, 62);
  std::vector<std::int64_t> merged(static_cast<std::size_t>(bins));
  for (std::int64_t k = 0; k < kept; ++k, counters += stride) {
    std::fill(merged.begin(), merged.end(), 0);
    for (std::int64_t i = 0; i < bins; ++i) {
      // Cells without counts may fall outside; clamping them adds 0.
      const std::int64_t target = ((start + i) >> steps) - coarser.start;
      merged[static_cast<std::size_t>(std::clamp<std::int64_t>(target, 0, bins - 1))] += counters[i];
    }
    std::copy(merged.begin(), merged.end(), counters);
  }
}

}  // namespace torchtap::statistics::detail
