/// Reads the elements of a small sample of any dtype as numbers, for the loops of small.cpp, which defines
/// HWY_NAMESPACE and HWY_ATTR also where there is no Highway.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_SMALL_CONVERT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_SMALL_CONVERT_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_SMALL_CONVERT_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_SMALL_CONVERT_INL_HPP
#endif

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <torchtap/reductions/fast/memory.hpp>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {

constexpr std::int64_t kBlock = 256;  // elements that are converted at a time
constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline float float_of(std::uint32_t bits) noexcept {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

inline std::uint16_t bits_of(c10::Half x) noexcept {
  return x.x;
}

inline std::uint16_t bits_of(c10::BFloat16 x) noexcept {
  return x.x;
}

template <class T>
constexpr bool is_half_type = std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;

/// As c10 converts, but without branches and tables, so that a loop becomes vectors.
template <class To, class From>
To widened(From x) noexcept {
  if constexpr (std::is_same_v<From, c10::BFloat16>) {
    return static_cast<To>(float_of(static_cast<std::uint32_t>(bits_of(x)) << 16));
  } else if constexpr (std::is_same_v<From, c10::Half>) {
    const std::uint32_t bits = bits_of(x), magnitude = bits & 0x7FFFu, sign = (bits & 0x8000u) << 16;
    constexpr std::uint32_t kBias = (127 - 15) << 23;  // the difference of the exponents' biases
    const std::uint32_t special = magnitude >= 0x7C00u ? 0x7F800000u : 0u;  // infinity and NaN
    // Computed, because a denormal number of float32 may be read as zero (at::set_flush_denormal).
    const float denormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
    std::uint32_t small;
    std::memcpy(&small, &denormal, sizeof small);
    const std::uint32_t is_small = 0u - static_cast<std::uint32_t>(magnitude < 0x400u);
    const std::uint32_t result = (small & is_small) | ((((magnitude << 13) + kBias) | special) & ~is_small);
    return static_cast<To>(float_of(result | sign));
  } else {
    return static_cast<To>(x);
  }
}

/// Calls `f` with a null pointer to the C++ type of `type`.
template <class F>
auto with_type(c10::ScalarType type, F&& f) {
  switch (type) {
    case c10::ScalarType::Float:
      return f(static_cast<const float*>(nullptr));
    case c10::ScalarType::Double:
      return f(static_cast<const double*>(nullptr));
    case c10::ScalarType::Half:
      return f(static_cast<const c10::Half*>(nullptr));
    case c10::ScalarType::BFloat16:
      return f(static_cast<const c10::BFloat16*>(nullptr));
    case c10::ScalarType::Long:
      return f(static_cast<const std::int64_t*>(nullptr));
    case c10::ScalarType::Int:
      return f(static_cast<const std::int32_t*>(nullptr));
    case c10::ScalarType::Short:
      return f(static_cast<const std::int16_t*>(nullptr));
    case c10::ScalarType::Char:
      return f(static_cast<const std::int8_t*>(nullptr));
    case c10::ScalarType::Bool:  // a byte of 0 or 1, too
    default:                     // callers have asked is_small_type
      return f(static_cast<const std::uint8_t*>(nullptr));
  }
}

template <class T>
const T* elements(const Memory& x) noexcept {
  return reinterpret_cast<const T*>(x.data);
}

/// Calls `f(doubles, from, n)` for each block of elements, converted to float64.
template <class F>
void each_block(const Memory& x, const F& f) {
  with_type(x.type, [&](auto* typed) HWY_ATTR {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    const T* const from = elements<T>(x);
    if constexpr (std::is_same_v<T, double>) {
      f(from, 0, x.numel);
    } else {
      double block[kBlock];
      for (std::int64_t i = 0; i < x.numel; i += kBlock) {
        const std::int64_t n = std::min(kBlock, x.numel - i);
        for (std::int64_t j = 0; j < n; ++j) block[j] = widened<double>(from[i + j]);
        f(block, i, n);
      }
    }
  });
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
