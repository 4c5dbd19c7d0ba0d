/// The loops of `Kernels`. Highway compiles this file once for each kind of vector and picks one at run time.

#ifdef TORCHTAP_HAVE_HIGHWAY

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <torchtap/reductions/detail/kernels.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL  // for its instruction that counts bits
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torchtap/reductions/detail/kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef TORCHTAP_REDUCTIONS_DETAIL_KERNELS_ONCE
#define TORCHTAP_REDUCTIONS_DETAIL_KERNELS_ONCE
namespace torchtap::reductions::detail {

/// Calls `f` with a null pointer to the type that `type` names.
template <class F>
void with_type(c10::ScalarType type, F&& f) {
  switch (type) {
    case c10::ScalarType::Float:
      return f(static_cast<float*>(nullptr));
    case c10::ScalarType::Double:
      return f(static_cast<double*>(nullptr));
    case c10::ScalarType::Half:
      return f(static_cast<c10::Half*>(nullptr));
    case c10::ScalarType::BFloat16:
      return f(static_cast<c10::BFloat16*>(nullptr));
    default:
      return;  // the caller asks for these four only
  }
}

template <class T>
double widened(T x) {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return static_cast<double>(static_cast<float>(x));
  }
}

/// In two passes, element by element: for what the fast loops cannot do well, non-finite elements and a mean
/// that is far from the one assumed.
template <class T>
Summary summarize_carefully(const T* x, std::size_t n, std::size_t stride) {
  Summary result;
  for (std::size_t i = 0; i < n; ++i) {
    const double value = widened(x[i * stride]);
    if (std::isfinite(value)) {
      ++result.taken;
      result.sum += value;
      result.min = std::min(result.min, value);
      result.max = std::max(result.max, value);
      result.zeros += value == 0.0 ? 1 : 0;
    } else {
      ++(std::isnan(value) ? result.nan
         : value > 0       ? result.positive_infinities
                           : result.negative_infinities);
    }
  }
  if (result.taken == 0) return result;
  result.mean = result.min == result.max ? result.min : result.sum / static_cast<double>(result.taken);
  for (std::size_t i = 0; i < n; ++i) {
    const double value = widened(x[i * stride]);
    if (!std::isfinite(value)) continue;
    const double deviation = value - result.mean;
    const double square = deviation * deviation;
    result.m2 += square;
    result.m3 += square * deviation;
    result.m4 += square * square;
  }
  return result;
}

/// Where powers are taken: of (x - shift) * scale. The nearer the shift is to the mean, the fewer digits
/// cancel out; the scale, a power of two, keeps fourth powers within the range of float32.
struct Frame {
  double shift = 0.0, scale = 1.0;

  /// Around numbers with this mean and spread.
  static Frame around(double mean, double spread) {
    Frame frame;
    // With few enough digits for its multiples to be exact.
    const auto rounded = static_cast<double>(static_cast<float>(mean));
    if (std::isfinite(rounded)) frame.shift = rounded;
    if (std::isfinite(spread) && spread > 0)
      frame.scale = std::ldexp(1.0, -std::clamp(std::ilogb(spread), -100, 100));
    return frame;
  }

  /// Around some elements taken from all over them.
  template <class T>
  static Frame of(const T* x, std::size_t n, std::size_t stride) {
    constexpr std::size_t kProbes = 16;
    double probes[kProbes], mean = 0.0, spread = 0.0;
    for (std::size_t i = 0; i < kProbes; ++i) mean += probes[i] = widened(x[i * n / kProbes * stride]);
    // What comes next in memory is most likely what is asked for next.
    for (std::size_t i = 0; i < kProbes; ++i) hwy::Prefetch(x + (n + i * n / kProbes) * stride);
    mean /= kProbes;
    for (const double probe : probes) spread = std::max(spread, std::abs(probe - mean));
    return around(mean, spread);
  }
};

/// Sums of powers in a frame, made in lanes of type L.
struct Powers {
  double s1 = 0.0, s2 = 0.0, s3 = 0.0, s4 = 0.0;

  /// Turns them into central moments of `n` elements; false if that would lose too many digits: what the
  /// offset of the shift adds to the sum of fourth powers cancels out again. `out` has the extrema.
  template <class L>
  bool central(std::size_t n, const Frame& frame, Summary* out) const {
    constexpr bool kFloat = std::is_same_v<L, float>;
    const auto count = static_cast<double>(n);
    const double offset = s1 / count, size = 1 / frame.scale;
    const double m2 = s2 - s1 * offset;
    const double m3 = s3 - 3 * offset * s2 + 2 * s1 * offset * offset;
    const double m4 = s4 - 4 * offset * s3 + 6 * offset * offset * s2 - 3 * s1 * offset * offset * offset;
    out->taken = static_cast<std::int64_t>(n);
    out->sum = count * frame.shift + s1 * size;
    out->mean = frame.shift + offset * size;
    out->m2 = m2 * size * size;
    out->m3 = m3 * size * size * size;
    out->m4 = m4 * size * size * size * size;
    if (!std::isfinite(s4) || !(s1 * offset <= (kFloat ? 2.0 : 64.0) * m2)) return false;  // false for NaN
    return !kFloat || out->min == out->max || (m2 > 0x1p-40 * count && m2 < 0x1p40 * count);
  }
};

template <class T>
constexpr std::size_t kChunk = 65536 / sizeof(T);  // elements that share a frame
constexpr std::size_t kFew = 2048;                 // elements that are summed in float64 whatever they are

/// The slot of one value, whatever it is.
inline std::int64_t slot_of(const Bins& bins, double x) {
  if (std::isnan(x)) return bins.bins + 2;
  if (x < bins.low) return 0;
  if (x > bins.high) return bins.bins + 1;
  const double guess = (x - bins.low) / (bins.high - bins.low) * static_cast<double>(bins.bins);
  auto bin = std::clamp<std::int64_t>(static_cast<std::int64_t>(guess), 0, bins.bins - 1);
  while (bin > 0 && x < bins.edges[bin]) --bin;
  while (bin + 1 < bins.bins && x >= bins.edges[bin + 1]) ++bin;
  return bin + 1;
}

/// Reads slots off the bits of x * scale + offset: `kBits` of them below the leading one, then a fraction.
template <class L, int kBits>
class Ruler {
 public:
  using Lane = L;
  using Word = std::conditional_t<sizeof(Lane) == 4, std::uint32_t, std::uint64_t>;
  static constexpr int kFraction = std::numeric_limits<Lane>::digits - 1 - kBits;
  static constexpr Word kMask = (Word{1} << kBits) - 1;

  explicit Ruler(const Bins& bins) : bins_(bins) {
    const double per_bin = static_cast<double>(bins.bins) / (bins.high - bins.low);
    const double largest = std::max(std::abs(bins.low), std::abs(bins.high));
    const double first = std::ldexp(1.0, kBits);
    // Of the product, its factors, the sum, its summand and the edges, all together.
    const double rounding = 4.0 * std::numeric_limits<Lane>::epsilon() * (2 * largest * per_bin + first + 2);
    if (static_cast<double>(bins.bins + 3) > first || !(rounding < 0.125) ||
        !(per_bin >= std::numeric_limits<Lane>::min() && per_bin < std::numeric_limits<Lane>::max() / 4) ||
        !(largest < std::numeric_limits<Lane>::max() / 4))
      return;
    scale = static_cast<Lane>(per_bin);
    offset = static_cast<Lane>(first + 1 - bins.low * per_bin);
    least = bits_of(first + 0.75);
    most = bits_of(first + static_cast<double>(bins.bins) + 1.25);
    tolerance = Word{1} << (kFraction + std::ilogb(rounding) + 1);
    distance = (Word{1} << kFraction) - 2 * tolerance;
    nan = static_cast<Word>(bins.bins + 2);
    fits_ = true;
  }

  /// Whether what is lost in rounding is far less than a bin.
  bool fits() const noexcept { return fits_; }

  /// What separates slot i from slot i + 1: the least number in the latter.
  const Lane* edges() {
    if (edges_.empty()) {
      edges_.reserve(static_cast<std::size_t>(bins_.bins + 1));
      for (std::int64_t i = 0; i <= bins_.bins; ++i) {
        const double edge = i == 0 ? bins_.low : i == bins_.bins ? bins_.high : bins_.edges[i];
        auto rounded = static_cast<Lane>(edge);
        if (rounded < edge || (i == bins_.bins && rounded == edge))
          rounded = std::nextafter(rounded, std::numeric_limits<Lane>::infinity());
        edges_.push_back(rounded);
      }
    }
    return edges_.data();
  }

  std::int64_t slot_of(double x) const { return detail::slot_of(bins_, x); }

  Lane scale = 0, offset = 0;
  std::make_signed_t<Word> least = 0, most = 0;  ///< beyond lies nothing but the outer slots
  Word tolerance = 0, distance = 0;  ///< near an edge: fraction + tolerance has no bit of distance
  Word nan = 0;

 private:
  static std::make_signed_t<Word> bits_of(double x) {
    const auto lane = static_cast<Lane>(x);
    std::make_signed_t<Word> bits;
    std::memcpy(&bits, &lane, sizeof bits);
    return bits;
  }

  const Bins& bins_;
  std::vector<Lane> edges_;
  bool fits_ = false;
};

}  // namespace torchtap::reductions::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Floats = hn::ScalableTag<float>;
using HalfFloats = hn::Rebind<float, Doubles>;  // as many as there are doubles in a vector

/// Lanes(d) elements from memory, as what lanes of D hold.
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
    return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(x)));
#else  // without an instruction for it, Highway takes what is not finite for large numbers
    const hn::Rebind<std::uint16_t, D> half;
    const hn::RebindToUnsigned<D> wide;
    const auto bits = hn::PromoteTo(wide, hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(x)));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(wide, 0x8000u)));
    const auto magnitude = hn::BitCast(d, hn::ShiftLeft<13>(hn::And(bits, hn::Set(wide, 0x7FFFu))));
    const auto number = hn::Mul(magnitude, hn::Set(d, 0x1p112F));  // the difference of the exponents' biases
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

/// Processors fetch ahead by themselves, but not across pages: a walk through memory is twice as fast so on
/// some. Elements that take little computing come in two steps, first into the larger cache: the smallest has
/// too few requests under way at a time.
constexpr std::size_t kAhead = 8192, kFarAhead = 12288, kNearAhead = 2048;  // bytes

template <class T>
HWY_INLINE void fetch_ahead(const T* x) {
  if constexpr (sizeof(T) == 2) {
    hwy::Prefetch(x + kAhead / sizeof(T));
  } else {
    __builtin_prefetch(x + kFarAhead / sizeof(T), /*write=*/0, /*locality=*/2);
    hwy::Prefetch(x + kNearAhead / sizeof(T));
  }
}

/// Two vectors of neighbours, in any order, in a walk through memory.
template <class D, class T>
HWY_INLINE void fetch(D d, const T* x, hn::Vec<D>& a, hn::Vec<D>& b) {
  constexpr std::size_t kLine = 64;  // bytes
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < 2 * lanes; i += kLine / sizeof(T)) fetch_ahead(x + i);
  if constexpr (std::is_same_v<T, c10::BFloat16> &&
                std::is_same_v<hn::TFromD<D>, float>) {  // the upper half of a float32 each
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

/// Takes `x` into extrema, which are exact in lanes of any width, and counts zeros.
template <bool kZeros, class D, class V = hn::Vec<D>>
HWY_INLINE void add_extrema(D d, V x, V& low, V& high, std::size_t& zeros) {
  low = hn::Min(low, x);
  high = hn::Max(high, x);
  if constexpr (kZeros) zeros += hn::CountTrue(d, hn::Eq(x, hn::Zero(d)));
}

/// The same of float16 or bfloat16, from the bits: two vectors' worth of floats in one. Bits of positive
/// numbers ascend, those of negative ones, which have a sign, descend.
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

/// Puts them down, of `n` elements, at most kChunk<T>: more may be more than a lane can count.
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

/// Adds the powers of `x` in the frame of `scale` and `shift * scale`.
template <class V>
HWY_INLINE void add_powers(V x, V scale, V shift, V& s1, V& s2, V& s3, V& s4) {
  const V d = hn::MulSub(x, scale, shift);
  const V square = hn::Mul(d, d);
  s1 = hn::Add(s1, d);
  s2 = hn::Add(s2, square);
  s3 = hn::MulAdd(square, d, s3);
  s4 = hn::MulAdd(square, square, s4);
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

/// As wide as T, float32 for the half types.
template <class T>
using OwnLane = std::conditional_t<std::is_same_v<T, double>, double, float>;
constexpr std::size_t kWhile = 16;  // summands

/// Sums powers in lanes of type Lane for a while, before their sums go on in float64; finds extrema and
/// zeros. False if the frame does not fit.
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

/// A frame that does not fit gives way to one around what was found in it.
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

/// With moments. Many numbers of few digits can do with float32: of sums of sixteen, less than 5e-7 is lost
/// even if all rounding errors, which are random in most data, go one way.
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

/// Columns side by side. Sums stay in registers for as many rows as are likely to be fetched ahead at a time.
template <class T>
void summarize_columns(const T* x, std::size_t rows, std::size_t width, std::size_t stride, Summary* out) {
  constexpr std::size_t kRows = 16;
  constexpr std::size_t kSpace = Kernels::kColumns + HWY_MAX_BYTES / sizeof(double);
  struct Lines {
    double scale[kSpace], shift[kSpace], min[kSpace], max[kSpace], zeros[kSpace], s1[kSpace], s2[kSpace],
        s3[kSpace], s4[kSpace];
  };
  HWY_ALIGN Lines lines = {};
  std::array<Frame, Kernels::kColumns> frames;
  for (std::size_t c = 0; c < width; ++c) {
    frames[c] = Frame::of(x + c, rows, stride);
    lines.scale[c] = frames[c].scale;
    lines.shift[c] = frames[c].shift * frames[c].scale;
    lines.min[c] = std::numeric_limits<double>::infinity();
    lines.max[c] = -lines.min[c];
  }

  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d), one = hn::Set(d, 1.0);
  for (std::size_t from = 0; from < rows; from += kRows) {
    const std::size_t to = std::min(rows, from + kRows);
    for (std::size_t c = 0; c < width; c += lanes) {
      const auto scale = hn::LoadU(d, lines.scale + c), shift = hn::LoadU(d, lines.shift + c);
      auto s1 = hn::LoadU(d, lines.s1 + c), s2 = hn::LoadU(d, lines.s2 + c), s3 = hn::LoadU(d, lines.s3 + c),
           s4 = hn::LoadU(d, lines.s4 + c), min = hn::LoadU(d, lines.min + c),
           max = hn::LoadU(d, lines.max + c), zeros = hn::LoadU(d, lines.zeros + c);
      T padded[HWY_MAX_BYTES / sizeof(double)] = {};
      for (std::size_t r = from; r < to; ++r) {
        const T* p = x + r * stride + c;
        hwy::Prefetch(p + 2 * kRows * stride);
        if (c + lanes > width) {
          std::copy(p, p + (width - c), padded);  // what stands behind them is not used
          p = padded;
        }
        const auto v = load(d, p);
        add_powers(v, scale, shift, s1, s2, s3, s4);
        min = hn::Min(min, v);
        max = hn::Max(max, v);
        zeros = hn::Add(zeros, hn::IfThenElseZero(hn::Eq(v, zero), one));
      }
      hn::StoreU(s1, d, lines.s1 + c);
      hn::StoreU(s2, d, lines.s2 + c);
      hn::StoreU(s3, d, lines.s3 + c);
      hn::StoreU(s4, d, lines.s4 + c);
      hn::StoreU(min, d, lines.min + c);
      hn::StoreU(max, d, lines.max + c);
      hn::StoreU(zeros, d, lines.zeros + c);
    }
  }
  for (std::size_t c = 0; c < width; ++c) {
    out[c] = Summary();
    out[c].min = lines.min[c];
    out[c].max = lines.max[c];
    out[c].zeros = static_cast<std::int64_t>(lines.zeros[c]);
    const Powers powers{lines.s1[c], lines.s2[c], lines.s3[c], lines.s4[c]};
    if (!powers.central<double>(rows, frames[c], &out[c])) out[c] = summarize_carefully(x + c, rows, stride);
  }
}

void columns(c10::ScalarType type, const void* x, std::size_t rows, std::size_t width, std::size_t stride,
             Summary* out) {
  with_type(type, [&](auto* typed) {
    summarize_columns(static_cast<decltype(typed)>(const_cast<void*>(x)), rows, width, stride, out);
  });
}

template <class T>
void fold_moments_of(const T* x, std::size_t n, double count, double* mean, double* m2, double* m3,
                     double* m4) {
  const auto fold = [&](auto d, const T* p, double* mean_at, double* m2_at, double* m3_at,
                        double* m4_at) HWY_ATTR {
    const auto v = load(d, p);
    const auto old = hn::LoadU(d, mean_at), p2 = hn::LoadU(d, m2_at), p3 = hn::LoadU(d, m3_at),
               p4 = hn::LoadU(d, m4_at);
    const auto delta = hn::Sub(v, old);
    const auto part = hn::Mul(delta, hn::Set(d, 1.0 / count));
    const auto square = hn::Mul(part, part);
    const auto between = hn::Mul(hn::Mul(delta, part), hn::Set(d, count - 1));
    // An infinite mean stays what torch makes of it, where the difference of two would be NaN.
    const auto total = hn::Add(old, v);
    hn::StoreU(hn::IfThenElse(hn::IsFinite(total), hn::Add(old, part), total), d, mean_at);
    const auto three = hn::Mul(part, p2);
    const auto r4 = hn::MulAdd(hn::Mul(between, square), hn::Set(d, count * count - 3 * count + 3), p4);
    const auto s4 = hn::MulAdd(hn::Mul(part, three), hn::Set(d, 6.0), r4);
    hn::StoreU(hn::NegMulAdd(hn::Mul(part, p3), hn::Set(d, 4.0), s4), d, m4_at);
    const auto r3 = hn::MulAdd(hn::Mul(between, part), hn::Set(d, count - 2), p3);
    hn::StoreU(hn::NegMulAdd(three, hn::Set(d, 3.0), r3), d, m3_at);
    hn::StoreU(hn::Add(p2, between), d, m2_at);
  };
  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) fold(d, x + i, mean + i, m2 + i, m3 + i, m4 + i);
  if (i == n) return;
  T padded[HWY_MAX_BYTES / sizeof(double)] = {};
  double state[4][HWY_MAX_BYTES / sizeof(double)] = {};
  double* const lines[4] = {mean, m2, m3, m4};
  std::copy(x + i, x + n, padded);
  for (int k = 0; k < 4; ++k) std::copy(lines[k] + i, lines[k] + n, state[k]);
  fold(d, padded, state[0], state[1], state[2], state[3]);
  for (int k = 0; k < 4; ++k) std::copy(state[k], state[k] + (n - i), lines[k] + i);
}

void fold_moments(c10::ScalarType type, const void* x, std::size_t n, double count, double* mean, double* m2,
                  double* m3, double* m4) {
  with_type(type, [&](auto* typed) {
    fold_moments_of(static_cast<decltype(typed)>(const_cast<void*>(x)), n, count, mean, m2, m3, m4);
  });
}

/// Up to this many, counting bits of slots takes less time than a counter for each.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
constexpr std::size_t kFewSlots = 256;
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr std::size_t kFewSlots = 160;
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr std::size_t kFewSlots = 96;
#elif HWY_TARGET != HWY_SCALAR
constexpr std::size_t kFewSlots = 32;
#else
constexpr std::size_t kFewSlots = 0;
#endif

template <int kBits, class V>
HWY_INLINE V shifted(V v) {
  if constexpr (kBits >= 0) {
    return hn::ShiftLeft<kBits>(v);
  } else {
    return hn::ShiftRight<-kBits>(v);
  }
}

/// Two vectors of neighbours, in any order, as their slots: in the bits above the ruler's fraction. A value
/// so near to an edge that rounding could tell, and NaN, is compared with the edge itself.
template <class D, class T, class R>
HWY_INLINE void find_slots(D d, const T* x, R& ruler, hn::Vec<hn::RebindToUnsigned<D>>& a,
                           hn::Vec<hn::RebindToUnsigned<D>>& b) {
  constexpr int kFraction = R::kFraction;
  const hn::RebindToSigned<D> integers;
  const hn::RebindToUnsigned<D> bits;
  auto va = hn::Undefined(d), vb = va;
  fetch(d, x, va, vb);
  const auto scale = hn::Set(d, ruler.scale), offset = hn::Set(d, ruler.offset);
  const auto least = hn::Set(integers, ruler.least), most = hn::Set(integers, ruler.most);
  const auto place = [&](auto v) HWY_ATTR {
    const auto found = hn::BitCast(integers, hn::MulAdd(v, scale, offset));
    return hn::BitCast(bits, hn::Min(hn::Max(found, least), most));
  };
  a = place(va);
  b = place(vb);
  const auto tolerance = hn::Set(bits, ruler.tolerance), distance = hn::Set(bits, ruler.distance);
  const auto is_unsure = [&](auto v, auto found) HWY_ATTR {
    const auto near = hn::Eq(hn::And(hn::Add(found, tolerance), distance), hn::Zero(bits));
    return hn::Or(hn::RebindMask(d, near), hn::IsNaN(v));
  };
  if (HWY_LIKELY(hn::AllFalse(d, hn::Or(is_unsure(va, a), is_unsure(vb, b))))) return;
  const auto* const edges = ruler.edges();
  const auto compare = [&](auto v, auto found) HWY_ATTR {
    constexpr auto kOne = hwy::MakeUnsigned<hn::TFromD<D>>{1};
    const auto one = hn::Set(bits, kOne);
    const auto rounded = hn::Add(found, hn::Set(bits, kOne << (kFraction - 1)));
    const auto upper = hn::And(hn::ShiftRight<kFraction>(rounded), hn::Set(bits, ruler.kMask));
    const auto edge = hn::GatherIndex(d, edges, hn::BitCast(integers, hn::Sub(upper, one)));
    const auto below = hn::RebindMask(bits, hn::Lt(v, edge));
    const auto slot = hn::Sub(upper, hn::IfThenElseZero(below, one));
    return hn::ShiftLeft<kFraction>(
        hn::IfThenElse(hn::RebindMask(bits, hn::IsNaN(v)), hn::Set(bits, ruler.nan), slot));
  };
  a = compare(va, a);
  b = compare(vb, b);
}

/// Slots below 256 as bytes, in any order: as many values as there are bytes in a vector.
template <class D, class T, class R, std::size_t... kPair>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> find_bytes(D d, const T* x, R& ruler,
                                                       std::index_sequence<kPair...>) {
  const hn::RebindToUnsigned<D> bits;
  using Word = hn::TFromD<decltype(bits)>;
  const std::size_t lanes = hn::Lanes(d);
  auto result = hn::Zero(bits);
  const auto add = [&](auto pair) HWY_ATTR {
    constexpr int kAt = 16 * static_cast<int>(decltype(pair)::value);
    auto a = hn::Undefined(bits), b = a;
    find_slots(d, x + 2 * decltype(pair)::value * lanes, ruler, a, b);
    a = hn::And(shifted<kAt - R::kFraction>(a), hn::Set(bits, Word{0xFF} << kAt));
    b = hn::And(shifted<kAt + 8 - R::kFraction>(b), hn::Set(bits, Word{0xFF} << (kAt + 8)));
    result = hn::Or(result, hn::Or(a, b));
  };
  (add(std::integral_constant<std::size_t, kPair>()), ...);
  return result;
}

/// Swaps the upper `kBits` of each 2 * kBits bits of `a` and the lower ones of `b`.
template <int kBits, class D, class V = hn::Vec<D>>
HWY_INLINE void swap_bits(D d, V& a, V& b) {
  constexpr std::uint64_t kLower = ~std::uint64_t{0} / ((std::uint64_t{1} << kBits) + 1);
  const auto both = hn::And(hn::Xor(hn::ShiftRight<kBits>(a), b), hn::Set(d, kLower));
  b = hn::Xor(b, both);
  a = hn::Xor(a, hn::ShiftLeft<kBits>(both));
}

/// Of eight vectors of bytes: the lowest bits of all bytes in the first one, and so on.
template <class D>
HWY_INLINE void to_planes(D d, std::uint64_t* words) {
  const std::size_t lanes = hn::Lanes(d);
  auto v0 = hn::Load(d, words), v1 = hn::Load(d, words + lanes), v2 = hn::Load(d, words + 2 * lanes),
       v3 = hn::Load(d, words + 3 * lanes), v4 = hn::Load(d, words + 4 * lanes),
       v5 = hn::Load(d, words + 5 * lanes), v6 = hn::Load(d, words + 6 * lanes),
       v7 = hn::Load(d, words + 7 * lanes);
  swap_bits<4>(d, v0, v4);
  swap_bits<4>(d, v1, v5);
  swap_bits<4>(d, v2, v6);
  swap_bits<4>(d, v3, v7);
  swap_bits<2>(d, v0, v2);
  swap_bits<2>(d, v1, v3);
  swap_bits<2>(d, v4, v6);
  swap_bits<2>(d, v5, v7);
  swap_bits<1>(d, v0, v1);
  swap_bits<1>(d, v2, v3);
  swap_bits<1>(d, v4, v5);
  swap_bits<1>(d, v6, v7);
  hn::Store(v0, d, words);
  hn::Store(v1, d, words + lanes);
  hn::Store(v2, d, words + 2 * lanes);
  hn::Store(v3, d, words + 3 * lanes);
  hn::Store(v4, d, words + 4 * lanes);
  hn::Store(v5, d, words + 5 * lanes);
  hn::Store(v6, d, words + 6 * lanes);
  hn::Store(v7, d, words + 7 * lanes);
}

template <class D>
HWY_INLINE hn::Vec<D> bit_counts(D /*d*/, hn::Vec<D> v) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  return hn::PopulationCount(v);  // an instruction of its own
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::SumsOf8(hn::PopulationCount(hn::BitCast(bytes, v)));
#endif
}

/// For each s below `size`, rounded up to a multiple of eight, adds how many of the numbers in the planes
/// have all the bits of s.
template <class D>
HWY_INLINE void count_supersets(D d, const std::uint64_t* planes, std::size_t size,
                                std::uint64_t* supersets) {
  const std::size_t lanes = hn::Lanes(d);
  const auto p1 = hn::Load(d, planes), p2 = hn::Load(d, planes + lanes), p3 = hn::And(p1, p2),
             p4 = hn::Load(d, planes + 2 * lanes), p5 = hn::And(p1, p4), p6 = hn::And(p2, p4),
             p7 = hn::And(p3, p4);
  HWY_ALIGN std::uint64_t uppers[kFewSlots / 8 * HWY_MAX_BYTES / sizeof(std::uint64_t)];
  hn::Store(hn::Set(d, ~std::uint64_t{0}), d, uppers);
  for (std::size_t s = 0; 8 * s < size; ++s) {
    if (s != 0) {
      const std::size_t lowest = hwy::Num0BitsBelowLS1Bit_Nonzero32(static_cast<std::uint32_t>(s));
      const auto rest = hn::Load(d, uppers + (s & (s - 1)) * lanes);
      hn::Store(hn::And(rest, hn::Load(d, planes + (3 + lowest) * lanes)), d, uppers + s * lanes);
    }
    const auto upper = hn::Load(d, uppers + s * lanes);
    std::uint64_t* const to = supersets + 8 * s * lanes;
    const auto add = [&](std::size_t i, auto v) HWY_ATTR {
      hn::Store(hn::Add(hn::Load(d, to + i * lanes), bit_counts(d, v)), d, to + i * lanes);
    };
    add(0, upper);
    add(1, hn::And(upper, p1));
    add(2, hn::And(upper, p2));
    add(3, hn::And(upper, p3));
    add(4, hn::And(upper, p4));
    add(5, hn::And(upper, p5));
    add(6, hn::And(upper, p6));
    add(7, hn::And(upper, p7));
  }
}

/// Few slots: no counter is touched for a single value. Bits of many slots stand side by side, and the ones
/// in a word are counted at once; from the numbers of slots that have all bits of s, and maybe others, follow
/// those of the slots that are s.
template <class T, class R>
void count_few_slots(const T* x, std::size_t n, R& ruler, std::size_t size, std::int64_t* counts) {
  using Lane = typename R::Lane;
  const hn::ScalableTag<Lane> d;
  const hn::ScalableTag<std::uint64_t> words;
  const std::size_t lanes = hn::Lanes(words), bytes = lanes * sizeof(std::uint64_t), block = 8 * bytes;
  HWY_ALIGN std::uint64_t supersets[kFewSlots * HWY_MAX_BYTES / sizeof(std::uint64_t)];
  std::fill(supersets, supersets + (size + 7) / 8 * 8 * lanes, 0);
  HWY_ALIGN std::uint64_t planes[8 * HWY_MAX_BYTES / sizeof(std::uint64_t)];
  const auto count = [&](const T* from) HWY_ATTR {
    for (std::size_t i = 0; i < 8; ++i) {
      const auto found = find_bytes(d, from + i * bytes, ruler, std::make_index_sequence<sizeof(Lane) / 2>());
      hn::Store(hn::BitCast(words, found), words, planes + i * lanes);
    }
    to_planes(words, planes);
    count_supersets(words, planes, size, supersets);
  };
  std::size_t i = 0;
  for (; i + block <= n; i += block) count(x + i);
  if (i < n) {
    T padded[8 * HWY_MAX_BYTES];
    // Slot 0 has no bits.
    std::fill(std::copy(x + i, x + n, padded), padded + block,
              static_cast<T>(-std::numeric_limits<float>::infinity()));
    count(padded);
  }

  std::int64_t exact[kFewSlots] = {static_cast<std::int64_t>(n)};
  for (std::size_t s = 1; s < size; ++s)
    exact[s] =
        static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(words, hn::Load(words, supersets + s * lanes))));
  for (std::size_t bit = 1; bit < size; bit *= 2) {
    for (std::size_t s = 0; s + bit < size; ++s) {
      if ((s & bit) == 0) exact[s] -= exact[s | bit];
    }
  }
  for (std::size_t s = 0; s < size; ++s) counts[s] += exact[s];
}

/// Neighbours have counters of their own: if both were one, the second would have to wait for the first.
template <class T, class R>
void count_many_slots(const T* x, std::size_t n, R& ruler, std::size_t size, std::int64_t* counts) {
  const hn::ScalableTag<typename R::Lane> d;
  const hn::RebindToUnsigned<decltype(d)> bits;
  using Word = hn::TFromD<decltype(bits)>;
  const std::size_t lanes = hn::Lanes(d), block = std::max<std::size_t>(64, 2 * lanes);
  constexpr std::size_t kTables = 4;
  const bool direct = n < 16 * kTables * size;  // else clearing the tables would take longer than waiting
  std::vector<std::int64_t> tables(direct ? 0 : kTables * size, 0);
  std::int64_t* const to = direct ? counts : tables.data();
  const std::size_t stride = direct ? 0 : size;
  HWY_ALIGN Word slots[64 + 2 * HWY_MAX_BYTES / sizeof(Word)];
  std::size_t i = 0;
  for (; i + block <= n; i += block) {
    for (std::size_t k = 0; k < block; k += 2 * lanes) {
      auto a = hn::Undefined(bits), b = a;
      find_slots(d, x + i + k, ruler, a, b);
      const auto mask = hn::Set(bits, ruler.kMask);
      hn::Store(hn::And(hn::ShiftRight<R::kFraction>(a), mask), bits, slots + k);
      hn::Store(hn::And(hn::ShiftRight<R::kFraction>(b), mask), bits, slots + k + lanes);
    }
    for (std::size_t j = 0; j < block; j += kTables) {
      for (std::size_t k = 0; k < kTables; ++k) ++to[k * stride + static_cast<std::size_t>(slots[j + k])];
    }
  }
  for (std::size_t j = 0; j < tables.size(); ++j) counts[j % size] += tables[j];
  for (; i < n; ++i) ++counts[ruler.slot_of(widened(x[i]))];
}

template <class T>
void count_bins_of(const T* x, std::size_t n, const Bins& bins, std::int64_t* counts) {
  constexpr std::size_t kFewValues = 32;
  const auto size = static_cast<std::size_t>(bins.bins + 3);
  if constexpr (kFewSlots != 0) {
    if (n >= kFewValues && size <= kFewSlots) {
      Ruler<OwnLane<T>, 8> ruler(bins);  // slots are bytes
      if (ruler.fits()) return count_few_slots(x, n, ruler, size, counts);
    }
  }
  if constexpr (!std::is_same_v<T, double>) {
    Ruler<float, 12> ruler(bins);
    if (n >= kFewValues && ruler.fits()) return count_many_slots(x, n, ruler, size, counts);
  }
  if (n >= kFewValues) {
    Ruler<double, 24> ruler(bins);
    if (ruler.fits()) return count_many_slots(x, n, ruler, size, counts);
  }
  for (std::size_t i = 0; i < n; ++i) ++counts[slot_of(bins, widened(x[i]))];
}

void count_bins(c10::ScalarType type, const void* x, std::size_t n, const Bins& bins, std::int64_t* counts) {
  with_type(type, [&](auto* typed) {
    count_bins_of(static_cast<decltype(typed)>(const_cast<void*>(x)), n, bins, counts);
  });
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torchtap::reductions::detail {
namespace {
HWY_EXPORT(run);
HWY_EXPORT(columns);
HWY_EXPORT(fold_moments);
HWY_EXPORT(count_bins);
}  // namespace

const Kernels* kernels() noexcept {
  static const Kernels all{
      [](c10::ScalarType type, const void* x, std::size_t n, Needs needs, Summary* out) {
        HWY_DYNAMIC_DISPATCH(run)(type, x, n, needs, out);
      },
      [](c10::ScalarType type, const void* x, std::size_t rows, std::size_t width, std::size_t stride,
         Summary* out) {
        HWY_DYNAMIC_DISPATCH(columns)
        (type, x, rows, width, stride, out);
      },
      [](c10::ScalarType type, const void* x, std::size_t n, double count, double* mean, double* m2,
         double* m3, double* m4) {
        HWY_DYNAMIC_DISPATCH(fold_moments)
        (type, x, n, count, mean, m2, m3, m4);
      },
      [](c10::ScalarType type, const void* x, std::size_t n, const Bins& bins, std::int64_t* counts) {
        HWY_DYNAMIC_DISPATCH(count_bins)(type, x, n, bins, counts);
      }};
  return &all;
}

}  // namespace torchtap::reductions::detail
#endif

#else  // TORCHTAP_HAVE_HIGHWAY

#include <torchtap/reductions/detail/kernels.hpp>

namespace torchtap::reductions::detail {

const Kernels* kernels() noexcept {
  return nullptr;
}

}  // namespace torchtap::reductions::detail
#endif
