#pragma once

/// The values of a tensor, or of several, as counts in the bins of `reductions::LogHistogram`.
///
/// A bin's number is its slot there: k for positive numbers of magnitude k, and 2048 + k for negative ones
/// (views/explorer/FORMAT.md).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/rules/facts.hpp>

namespace at {
class Tensor;
}

namespace torchtap::views::watch {

constexpr int mantissa_bits = 3;
/// Number of magnitudes of one sign, and the offset of the bins of negative numbers.
constexpr std::uint32_t magnitudes = 255U << mantissa_bits, negative = 256U << mantissa_bits;

/// Bins in the order of their numbers, with their counts.
using Bins = std::vector<std::pair<std::uint32_t, std::uint64_t>>;

struct TORCHTAP_API Column {
  std::int64_t first_step = 0, last_step = 0;
  std::uint64_t count = 0;  // of all elements, those included that are in no bin: NaN, infinities, zeros
  std::uint64_t nan = 0, posinf = 0, neginf = 0, zeros = 0;
  double min = 0, max = 0;  // of the finite elements, as are the sums; NaN if there are none
  double sum = 0, sum_squares = 0;
  std::uint32_t n_bins = 0;
  std::string bins;  // packed

  std::uint64_t finite() const noexcept { return count - nan - posinf - neginf; }
  /// Adds the values of another column. Counts are added exactly.
  void merge(const Column& other);
  double mean() const;
  /// Divided by n.
  double deviation() const;
  /// The root of the sum of the squares, and of their mean.
  double norm() const;
  double root_mean_square() const;
};

/// Sets the facts that a column has.
TORCHTAP_API void put(const Column& column, rules::Facts& facts);

/// The values of a real or complex tensor, whose parts count as two numbers. A tensor on a device is copied.
TORCHTAP_API Column measure(const at::Tensor& tensor);

/// The bin of a finite number that is not zero.
TORCHTAP_API std::uint32_t bin_of(double value);
/// The middle of a bin.
TORCHTAP_API double middle_of(std::uint32_t bin);

/// For each bin two varints (LEB128): its number minus the number of the bin before it, and its count.
/// Throws `c10::ValueError` if `packed` is no `count` bins in ascending order.
TORCHTAP_API Bins unpack(const std::string& packed, std::uint32_t count);

}  // namespace torchtap::views::watch
