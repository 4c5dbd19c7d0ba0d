#pragma once

// Sums of float64 without rounding, so that their order makes no difference.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace torchtap::quantization::detail {

/// A sum of numbers from 0 to 2^256, as a whole number of 2^-352 in digits of 32 bits, the lowest first: a
/// superaccumulator (Kulisch 1971). Bits of a number below 2^-352 are cut off. There is room for 2^64
/// numbers. The digits are those of an int32 tensor.
struct ExactSum {
  static constexpr std::int64_t kDigits = 22;

  static void add(std::int32_t* digits, double number) noexcept {
    std::uint64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    const int exponent = static_cast<int>(bits >> 52);
    std::uint64_t whole = bits & ((std::uint64_t{1} << 52) - 1);
    if (exponent != 0) whole |= std::uint64_t{1} << 52;
    int place = std::max(exponent, 1) - 1075 + kPlaces;  // of the lowest bit
    if (place < 0) {
      whole = place <= -64 ? 0 : whole >> -place;
      place = 0;
    }
    const int shift = place % 32;
    std::uint64_t carry = (whole & 0xFFFFFFFFU) << shift;  // and the upper half one digit later
    for (std::int64_t at = place / 32, next = at + 1; at < kDigits && (carry != 0 || at <= next); ++at) {
      if (at == next) carry += (whole >> 32) << shift;
      carry = put(digits[at], carry);
    }
  }
  static void merge(std::int32_t* digits, const std::int32_t* other) noexcept {
    std::uint64_t carry = 0;
    for (std::int64_t i = 0; i < kDigits; ++i)
      carry = put(digits[i], carry + static_cast<std::uint32_t>(other[i]));
  }
  /// The float64 next to the sum, or a neighbour of it.
  static double value(const std::int32_t* digits) noexcept {
    double sum = 0;
    for (int i = 0; i < kDigits; ++i)
      sum += std::ldexp(static_cast<double>(static_cast<std::uint32_t>(digits[i])), 32 * i - kPlaces);
    return sum;
  }

 private:
  static constexpr int kPlaces = 352;  // binary ones, after the point

  /// Adds to a digit, and returns the carry.
  static std::uint64_t put(std::int32_t& digit, std::uint64_t number) noexcept {
    number += static_cast<std::uint32_t>(digit);
    digit = static_cast<std::int32_t>(static_cast<std::uint32_t>(number));
    return number >> 32;
  }
};

}  // namespace torchtap::quantization::detail
