#pragma once

/// Defines bins that are read off the upper bits of numbers, and counts a sample in them.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>

namespace at {
class Tensor;
}

namespace torchtap::reductions {
class Pass;
}

namespace torchtap::reductions::extend {

/// Bins of the numbers whose sign, exponent and upper bits of the mantissa are the same.
///
/// These bits of a float32, as a number, are the slot of its bin: 0 ... infinity() - 1 are bins of positive
/// numbers, ascending, and `infinity()` counts Inf. Slots of negative numbers are higher by `negative()`. NaN
/// and zeros have separate slots. Bin m of either sign counts edge(m) <= |x| < edge(m + 1).
///
/// float16 and bfloat16 are float32 of fewer bits. A float64 and an integer, which is converted to one,
/// belong to the bin between whose edges they lie; the last finite bin also counts whatever is larger and
/// finite, the first what is smaller.
struct BitBins {
  int mantissa_bits;  ///< 0 ... 7

  std::int64_t infinity() const noexcept { return std::int64_t{255} << mantissa_bits; }
  std::int64_t negative() const noexcept { return std::int64_t{256} << mantissa_bits; }
  std::int64_t nan() const noexcept { return 2 * negative(); }
  std::int64_t zero() const noexcept { return nan() + 1; }
  std::int64_t slots() const noexcept { return nan() + 2; }
  std::int64_t per_octave() const noexcept { return std::int64_t{1} << mantissa_bits; }
  /// The least magnitude in bin `magnitude`; bin infinity() has 2^128.
  TORCHTAP_API double edge(std::int64_t magnitude) const noexcept;
};

/// Slots and their counts.
using SlotCounts = std::vector<std::pair<std::uint32_t, std::int64_t>>;

/// Single-threaded loops over contiguous numbers: floating-point types of up to 64 bits, integers of up to 64
/// bits and bool.
struct BitKernels {
  /// Adds 1 to counts[slot] for each of `n` elements.
  void (*count)(c10::ScalarType type, const void* x, std::size_t n, BitBins bins, std::int64_t* counts);
  /// The slot of each of `n` elements.
  void (*find)(c10::ScalarType type, const void* x, std::size_t n, BitBins bins, std::uint32_t* slots);
};

/// There are always some: without Highway, plain loops.
TORCHTAP_API const BitKernels& bit_kernels() noexcept;
/// Whether the loops read this type.
TORCHTAP_API bool has_bits(c10::ScalarType type) noexcept;

/// Asks that the pass also counts all elements of its sample in these bins, before its first result is read.
TORCHTAP_API void ask_bits(Pass& pass, BitBins bins);
/// The counts, in no order and without slots that count nothing; null if numbers of the sample's dtype or
/// layout have no such bits. They live as long as the pass.
TORCHTAP_API const SlotCounts* count_bits(const Pass& pass, BitBins bins);
/// The counts of a strided tensor of real numbers on the CPU, in a pass of their own. Slots ascend.
TORCHTAP_API SlotCounts count_bits(const at::Tensor& x, BitBins bins);

}  // namespace torchtap::reductions::extend
