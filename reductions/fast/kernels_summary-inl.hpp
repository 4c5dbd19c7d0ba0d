/// Summarises neighbouring elements: `Kernels::run`.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_KERNELS_SUMMARY_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_KERNELS_SUMMARY_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_KERNELS_SUMMARY_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_KERNELS_SUMMARY_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <torchtap/reductions/fast/kernels_lanes-inl.hpp>
#include <torchtap/reductions/fast/kernels_scalar.hpp>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {

/// Updates the extrema, which are exact in lanes of any width, and counts zeros.
template <bool kZeros, class D, class V = hn::Vec<D>>
HWY_INLINE void add_extrema(D d, V x, V& low, V& high, std::size_t& zeros) {
  low = hn::Min(low, x);
  high = hn::Max(high, x);
  if constexpr (kZeros) zeros += hn::CountTrue(d, hn::Eq(x, hn::Zero(d)));
}

/// As above for float16 or bfloat16, on their bits: one vector holds twice as many elements as a vector of
/// floats. The bits of positive numbers ascend, and the bits of negative numbers, which have the sign bit
/// set, descend.
using Halves = hn::ScalableTag<std::uint16_t>;
using SignedHalves = hn::ScalableTag<std::int16_t>;

template <bool kZeros, class T>
HWY_INLINE void add_half_extrema(const T* x, std::size_t n, hn::Vec<Halves>& least, hn::Vec<Halves>& most,
                                 hn::Vec<SignedHalves>& greatest, hn::Vec<Halves>& other_than_zero) {
  const Halves d;
  const SignedHalves integers;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto bits = hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(x + i));
    least = hn::Min(least, bits);
    most = hn::Max(most, bits);
    greatest = hn::Max(greatest, hn::BitCast(integers, bits));
    if constexpr (kZeros) {
      const auto is_other = hn::Min(hn::Add(bits, bits), hn::Set(d, std::uint16_t{1}));
      other_than_zero = hn::Add(other_than_zero, is_other);
    }
  }
}

/// Stores the extrema and the number of zeros of `n` elements. `n` is at most kChunk<T>, as a 16-bit lane
/// cannot count further.
template <bool kZeros, class T>
HWY_INLINE void take_half_extrema(std::size_t n, hn::Vec<Halves> least, hn::Vec<Halves> most,
                                  hn::Vec<SignedHalves> greatest, hn::Vec<Halves> other_than_zero,
                                  Summary* out, std::size_t* zeros) {
  const Halves d;
  const auto number = [](std::uint16_t bits) { return widened(T(bits, T::from_bits())); };
  const std::uint16_t first = hn::GetLane(hn::MinOfLanes(d, least)),
                      last = hn::GetLane(hn::MaxOfLanes(d, most));
  const std::int16_t positive = hn::GetLane(hn::MaxOfLanes(SignedHalves(), greatest));
  out->min = number(last >= 0x8000 ? last : first);
  out->max = number(positive >= 0 ? static_cast<std::uint16_t>(positive) : first);
  if constexpr (kZeros) *zeros = n - hn::GetLane(hn::SumOfLanes(d, other_than_zero));
}

HWY_INLINE void add_widened(Doubles, hn::Vec<Doubles> x, hn::Vec<Doubles>& total) {
  total = hn::Add(total, x);
}
HWY_INLINE void add_widened(Floats, hn::Vec<Floats> x, hn::Vec<Doubles>& total) {
  const Doubles wide;
#if HWY_TARGET == HWY_SCALAR
  total = hn::Add(total, hn::PromoteTo(wide, x));
#else
  const HalfFloats half;
  total = hn::Add(total, hn::PromoteTo(wide, hn::LowerHalf(half, x)));
  total = hn::Add(total, hn::PromoteTo(wide, hn::UpperHalf(half, x)));
#endif
}

constexpr std::size_t kWhile = 16;  // summands per lane before widening

/// Sums powers in lanes of type Lane, kWhile at a time, and accumulates those sums in float64. Also finds
/// extrema and zeros. Returns false if the frame does not fit.
template <bool kZeros, class Lane, class T>
bool summarize_in(const Frame& frame, const T* x, std::size_t n, Summary* out) {
  const hn::ScalableTag<Lane> d;
  const Doubles wide;
  const std::size_t lanes = hn::Lanes(d), whole = n - n % (2 * lanes);
  constexpr bool kHalves = sizeof(T) == 2 && sizeof(Lane) == 4 && !HWY_HAVE_SCALABLE;  // GCC 12 breaks on SVE
  Powers powers;
  *out = Summary();
  std::size_t zeros = 0;
  if (whole != 0) {
    const auto scale = hn::Set(d, static_cast<Lane>(frame.scale));
    const auto shift = hn::Set(d, static_cast<Lane>(frame.shift * frame.scale));
    auto low0 = load(d, x), high0 = low0, low1 = low0, high1 = low0;
    auto first = hn::Set(Halves(), std::uint16_t{0xFFFF}), last = hn::Zero(Halves()), other = last;
    auto positive = hn::Set(SignedHalves(), std::int16_t{-0x8000});
    auto t1 = hn::Zero(wide), t2 = t1, t3 = t1, t4 = t1;
    for (std::size_t i = 0; i < whole;) {
      const std::size_t end = std::min(whole, i + kWhile * 2 * lanes);
      auto a1 = hn::Zero(d), a2 = a1, a3 = a1, a4 = a1, b1 = a1, b2 = a1, b3 = a1, b4 = a1;
      for (; i < end; i += 2 * lanes) {
        auto a = hn::Undefined(d), b = a;
        fetch(d, x + i, a, b);
        if constexpr (kHalves) {
          add_half_extrema<kZeros>(x + i, 2 * lanes, first, last, positive, other);
        } else {
          add_extrema<kZeros>(d, a, low0, high0, zeros);
          add_extrema<kZeros>(d, b, low1, high1, zeros);
        }
        add_powers(a, scale, shift, a1, a2, a3, a4);
        add_powers(b, scale, shift, b1, b2, b3, b4);
      }
      add_widened(d, hn::Add(a1, b1), t1);
      add_widened(d, hn::Add(a2, b2), t2);
      add_widened(d, hn::Add(a3, b3), t3);
      add_widened(d, hn::Add(a4, b4), t4);
    }
    powers = {sum(wide, t1), sum(wide, t2), sum(wide, t3), sum(wide, t4)};
    if constexpr (kHalves) {
      take_half_extrema<kZeros, T>(whole, first, last, positive, other, out, &zeros);
    } else {
      out->min = least(d, hn::Min(low0, low1));
      out->max = greatest(d, hn::Max(high0, high1));
    }
  }
  for (std::size_t i = whole; i < n; ++i) {
    const double value = widened(x[i]);
    out->min = std::min(out->min, value);
    out->max = std::max(out->max, value);
    zeros += value == 0.0 ? 1 : 0;
    const double distance = (value - frame.shift) * frame.scale, square = distance * distance;
    powers.s1 += distance;
    powers.s2 += square;
    powers.s3 += square * distance;
    powers.s4 += square * square;
  }
  out->zeros = static_cast<std::int64_t>(zeros);
  return powers.template central<Lane>(n, frame, out);
}

/// If the first frame does not fit, retries with a frame around the mean and spread found, then falls back to
/// two passes.
template <bool kZeros, class Lane, class T>
Summary summarize_powers_in(const T* x, std::size_t n) {
  Summary result;
  if (summarize_in<kZeros, Lane>(Frame::of(x, n, 1), x, n, &result)) return result;
  const double spread = std::sqrt(result.m2 / static_cast<double>(n));
  if (std::isfinite(result.mean) && spread > 0 &&
      summarize_in<kZeros, Lane>(Frame::around(result.mean, spread), x, n, &result))
    return result;
  return summarize_carefully(x, n, 1);
}

/// With moments. For many numbers of low precision float32 is enough: sums of sixteen lose less than 5e-7
/// even if all rounding errors, which are random in most data, have the same sign.
template <bool kZeros, class T>
Summary summarize_powers(const T* x, std::size_t n) {
  return n < kFew ? summarize_powers_in<kZeros, double>(x, n) : summarize_powers_in<kZeros, OwnLane<T>>(x, n);
}

/// Without moments, which leaves time to sum in float64.
template <bool kZeros, class T>
Summary summarize_sum(const T* x, std::size_t n) {
  const hn::ScalableTag<OwnLane<T>> d;
  const Doubles wide;
  const std::size_t lanes = hn::Lanes(d), half = hn::Lanes(wide), whole = n - n % (2 * lanes);
  Summary result;
  std::size_t zeros = 0;
  if (whole != 0) {
    auto low0 = load(d, x), high0 = low0, low1 = low0, high1 = low0;
    auto a = hn::Zero(wide), b = a;
    for (std::size_t i = 0; i < whole; i += 2 * lanes) {
      auto v0 = hn::Undefined(d), v1 = v0;
      fetch(d, x + i, v0, v1);
      add_extrema<kZeros>(d, v0, low0, high0, zeros);
      add_extrema<kZeros>(d, v1, low1, high1, zeros);
      for (std::size_t j = 0; j < 2 * lanes; j += 2 * half) {
        a = hn::Add(a, load(wide, x + i + j));
        b = hn::Add(b, load(wide, x + i + j + half));
      }
    }
    result.sum = sum(wide, hn::Add(a, b));
    result.min = least(d, hn::Min(low0, low1));
    result.max = greatest(d, hn::Max(high0, high1));
  }
  for (std::size_t i = whole; i < n; ++i) {
    const double value = widened(x[i]);
    result.sum += value;
    result.min = std::min(result.min, value);
    result.max = std::max(result.max, value);
    zeros += value == 0.0 ? 1 : 0;
  }
  if (!std::isfinite(result.sum)) return summarize_carefully(x, n, 1);
  result.zeros = static_cast<std::int64_t>(zeros);
  result.taken = static_cast<std::int64_t>(n);
  result.mean = result.sum / static_cast<double>(n);
  return result;
}

template <class T>
void summarize_run(const T* x, std::size_t n, Needs needs, Summary* out) {
  *out = Summary();
  for (std::size_t i = 0; i < n; i += kChunk<T>) {
    const std::size_t part = std::min(kChunk<T>, n - i);
    if (needs.moments) {
      out->merge(needs.zeros ? summarize_powers<true>(x + i, part) : summarize_powers<false>(x + i, part));
    } else {
      out->merge(needs.zeros ? summarize_sum<true>(x + i, part) : summarize_sum<false>(x + i, part));
    }
  }
}

void run(c10::ScalarType type, const void* x, std::size_t n, Needs needs, Summary* out) {
  with_type(type, [&](auto* typed) {
    summarize_run(static_cast<decltype(typed)>(const_cast<void*>(x)), n, needs, out);
  });
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
