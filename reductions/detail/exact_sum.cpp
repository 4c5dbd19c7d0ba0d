// Adds digit by digit, with carries.

#include <cmath>
#include <cstring>

#include <torchtap/reductions/detail/exact_sum.hpp>

namespace torchtap::reductions::detail {
namespace {

constexpr int kLowestBit = -352, kDigitBits = 32;

/// Adds a digit to the one at `at`, and carries.
void add_digit(std::int32_t* digits, std::int64_t at, std::uint64_t digit) noexcept {
  for (; digit != 0 && at < ExactSum::kDigits; ++at) {
    digit += static_cast<std::uint32_t>(digits[at]);
    digits[at] = static_cast<std::int32_t>(static_cast<std::uint32_t>(digit));
    digit >>= kDigitBits;
  }
}

}  // namespace

void ExactSum::add(std::int32_t* digits, double number) noexcept {
  std::uint64_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  const int exponent = static_cast<int>(bits >> 52);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  if (exponent != 0) mantissa |= std::uint64_t{1} << 52;
  int place = (exponent == 0 ? 1 : exponent) - 1075 - kLowestBit;  // of the lowest bit
  if (place < 0) {
    mantissa = place <= -64 ? 0 : mantissa >> -place;
    place = 0;
  }
  const std::int64_t at = place / kDigitBits;
  const int shift = place % kDigitBits;
  const std::uint64_t low = (mantissa & 0xFFFFFFFFU) << shift, high = (mantissa >> kDigitBits) << shift;
  add_digit(digits, at, low);
  add_digit(digits, at + 1, high);
}

void ExactSum::merge(std::int32_t* digits, const std::int32_t* other) noexcept {
  std::uint64_t carry = 0;
  for (std::int64_t i = 0; i < kDigits; ++i) {
    carry += std::uint64_t{static_cast<std::uint32_t>(digits[i])} + static_cast<std::uint32_t>(other[i]);
    digits[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(carry));
    carry >>= kDigitBits;
  }
}

double ExactSum::value(const std::int32_t* digits) noexcept {
  double sum = 0;
  for (std::int64_t i = 0; i < kDigits; ++i)
    sum += std::ldexp(static_cast<double>(static_cast<std::uint32_t>(digits[i])),
                      kLowestBit + kDigitBits * static_cast<int>(i));
  return sum;
}

}  // namespace torchtap::reductions::detail
