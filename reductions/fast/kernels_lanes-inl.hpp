/// Loads elements of any of the four types into vectors.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_KERNELS_LANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_KERNELS_LANES_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_KERNELS_LANES_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_KERNELS_LANES_INL_HPP
#endif

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Floats = hn::ScalableTag<float>;
using HalfFloats = hn::Rebind<float, Doubles>;  // as many lanes as a vector has doubles

/// Loads Lanes(d) elements and converts them to the lane type of D.
template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* x) {
  using Lane = hn::TFromD<D>;
  if constexpr (std::is_same_v<T, Lane>) {
    return hn::LoadU(d, x);
  } else if constexpr (std::is_same_v<Lane, double>) {
    return hn::PromoteTo(d, load(HalfFloats(), x));
  } else if constexpr (std::is_same_v<T, c10::Half>) {
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM_A64
    const hn::Rebind<hwy::float16_t, D> half;
    const hn::Rebind<std::uint16_t, D> bits;  // Highway 1.0.3 cannot load two halves with Clang for ARM
    return hn::PromoteTo(d, hn::BitCast(half, hn::LoadU(bits, reinterpret_cast<const std::uint16_t*>(x))));
#else  // without such an instruction, Highway treats non-finite values as large numbers
    const hn::Rebind<std::uint16_t, D> half;
    const hn::RebindToUnsigned<D> wide;
    const auto bits = hn::PromoteTo(wide, hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(x)));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(wide, 0x8000u)));
    const auto magnitude = hn::BitCast(d, hn::ShiftLeft<13>(hn::And(bits, hn::Set(wide, 0x7FFFu))));
    const auto number = hn::Mul(magnitude, hn::Set(d, 0x1p112F));  // the difference of the exponent biases
    const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
    const auto special = hn::IfThenElseZero(hn::Ge(number, hn::Set(d, 65536.0F)), infinity);
    return hn::Or(hn::Or(number, special), hn::BitCast(d, sign));
#endif
  } else {
    static_assert(std::is_same_v<T, c10::BFloat16>);
    const hn::Rebind<std::uint16_t, D> bits;
    const hn::RebindToUnsigned<D> wide;
    const auto low = hn::LoadU(bits, reinterpret_cast<const std::uint16_t*>(x));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, low)));
  }
}

/// Hardware prefetchers stop at page boundaries, so explicit prefetching doubles the speed of a scan on some
/// processors. For cheap elements it takes two steps, the larger cache first, since the smallest cache
/// supports too few outstanding requests.
constexpr std::size_t kAhead = 8192, kFarAhead = 12288, kNearAhead = 2048;  // bytes

template <class T>
HWY_INLINE void fetch_ahead(const T* x) {
  const auto address = reinterpret_cast<std::uintptr_t>(x);  // a pointer may not lead out of its array
  if constexpr (sizeof(T) == 2) {
    hwy::Prefetch(reinterpret_cast<const char*>(address + kAhead));
  } else {
    __builtin_prefetch(reinterpret_cast<const char*>(address + kFarAhead), /*write=*/0, /*locality=*/2);
    hwy::Prefetch(reinterpret_cast<const char*>(address + kNearAhead));
  }
}

/// Loads two vectors of neighbouring elements, in any order, and prefetches.
template <class D, class T>
HWY_INLINE void fetch(D d, const T* x, hn::Vec<D>& a, hn::Vec<D>& b) {
  constexpr std::size_t kLine = 64;  // bytes
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < 2 * lanes; i += kLine / sizeof(T)) fetch_ahead(x + i);
  if constexpr (std::is_same_v<T, c10::BFloat16> &&
                std::is_same_v<hn::TFromD<D>, float>) {  // float32 whose upper half is the bfloat16
    const hn::RebindToUnsigned<D> bits;
    const auto both = hn::LoadU(bits, reinterpret_cast<const std::uint32_t*>(x));
    a = hn::BitCast(d, hn::ShiftLeft<16>(both));
    b = hn::BitCast(d, hn::And(both, hn::Set(bits, 0xFFFF0000u)));
  } else {
    a = load(d, x);
    b = load(d, x + lanes);
  }
}

template <class D>
HWY_INLINE double sum(D d, hn::Vec<D> v) {
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, v)));
}
template <class D>
HWY_INLINE double least(D d, hn::Vec<D> v) {
  return static_cast<double>(hn::GetLane(hn::MinOfLanes(d, v)));
}
template <class D>
HWY_INLINE double greatest(D d, hn::Vec<D> v) {
  return static_cast<double>(hn::GetLane(hn::MaxOfLanes(d, v)));
}

/// Adds the powers of `x` in the frame given by `scale` and `shift * scale`.
template <class V>
HWY_INLINE void add_powers(V x, V scale, V shift, V& s1, V& s2, V& s3, V& s4) {
  const V d = hn::MulSub(x, scale, shift);
  const V square = hn::Mul(d, d);
  s1 = hn::Add(s1, d);
  s2 = hn::Add(s2, square);
  s3 = hn::MulAdd(square, d, s3);
  s4 = hn::MulAdd(square, square, s4);
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
