#pragma once

/// Sums of float64 without rounding, so that their order makes no difference.

#include <cstdint>

namespace torchtap::reductions::detail {

/// A sum of numbers from 0 to 2^256, as a whole number of 2^-352 in digits of 32 bits, the lowest first: a
/// superaccumulator (Kulisch 1971). What a number has below 2^-352 is cut off. There is room for 2^64
/// numbers. The digits are those of an int32 tensor.
struct ExactSum {
  static constexpr std::int64_t kDigits = 22;

  /// Adds a number.
  static void add(std::int32_t* digits, double number) noexcept;
  /// Adds another sum.
  static void merge(std::int32_t* digits, const std::int32_t* other) noexcept;
  /// The float64 next to the sum, or a neighbour of it.
  static double value(const std::int32_t* digits) noexcept;
};

}  // namespace torchtap::reductions::detail
