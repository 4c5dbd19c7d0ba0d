/// The loops that count numbers by their bits. Highway compiles this file once per instruction set and picks
/// one at run time; without Highway it is compiled once, as plain loops.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include <torchtap/base/of_thread.hpp>
#include <torchtap/reductions/fast/bits.hpp>

#ifdef TORCHTAP_HAVE_HIGHWAY
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torchtap/reductions/fast/bits.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#endif

#ifndef TORCHTAP_REDUCTIONS_FAST_BITS_ONCE
#define TORCHTAP_REDUCTIONS_FAST_BITS_ONCE
namespace torchtap::reductions::detail {

/// Calls `f` with a null pointer to the C++ type of `type`; returns false if the loops do not read it.
template <class F>
bool with_number(c10::ScalarType type, F&& f) {
  const auto call = [&](auto* typed) {
    f(typed);
    return true;
  };
  switch (type) {
    case c10::ScalarType::Float:
      return call(static_cast<float*>(nullptr));
    case c10::ScalarType::Double:
      return call(static_cast<double*>(nullptr));
    case c10::ScalarType::Half:
      return call(static_cast<c10::Half*>(nullptr));
    case c10::ScalarType::BFloat16:
      return call(static_cast<c10::BFloat16*>(nullptr));
    case c10::ScalarType::Long:
      return call(static_cast<std::int64_t*>(nullptr));
    case c10::ScalarType::Int:
      return call(static_cast<std::int32_t*>(nullptr));
    case c10::ScalarType::Short:
      return call(static_cast<std::int16_t*>(nullptr));
    case c10::ScalarType::Char:
      return call(static_cast<std::int8_t*>(nullptr));
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:  // a byte that is 0 or 1
      return call(static_cast<std::uint8_t*>(nullptr));
    default:
      return false;
  }
}

template <class To, class From>
To bits_of(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

/// The bits of the number as a float32. No arithmetic with denormal numbers, which a processor may be set to
/// take for zeros.
inline std::uint32_t float_bits(float x) {
  return bits_of<std::uint32_t>(x);
}
inline std::uint32_t float_bits(c10::BFloat16 x) {
  return std::uint32_t{bits_of<std::uint16_t>(x)} << 16;
}
inline std::uint32_t float_bits(c10::Half x) {
  constexpr std::uint32_t kRebias = 127 - 15, kInfinity = 0x7C00, kNormal = 0x400;
  const std::uint32_t half = bits_of<std::uint16_t>(x), magnitude = half & 0x7FFFU;
  const std::uint32_t normal = (magnitude << 13) + (kRebias << 23);
  const std::uint32_t denormal =
      bits_of<std::uint32_t>(static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24F);
  const std::uint32_t special = magnitude << 13 | 0x7F800000U;
  const std::uint32_t finite = magnitude < kNormal ? denormal : normal;
  return (half & 0x8000U) << 16 | (magnitude >= kInfinity ? special : finite);
}

constexpr std::uint64_t kDoubleInfinity = std::uint64_t{0x7FF} << 52;
constexpr std::uint64_t kRebias = 1023 - 127;
constexpr std::uint64_t kSmall = (kRebias + 1)
                                 << 52;  // the bits of the float64 2^-126: less is denormal as a float32

/// The bin of the magnitude of a float64 below 2^-126, given as bits.
inline std::uint64_t small_magnitude(std::uint64_t bits, int mantissa_bits) {
  const std::uint64_t down = kRebias + 1 - (bits >> 52) + 52 - static_cast<std::uint64_t>(mantissa_bits);
  const std::uint64_t significand = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
  return down > 63 ? 0 : significand >> down;
}

/// The slot of any single number.
template <class T>
std::uint32_t slot_of(T x, BitBins bins) {
  const int m = bins.mantissa_bits;
  if constexpr (std::is_integral_v<T>) {
    return slot_of(static_cast<double>(x), bins);
  } else if constexpr (std::is_same_v<T, double>) {
    const auto all = bits_of<std::uint64_t>(x), magnitude = all & ~(std::uint64_t{1} << 63);
    std::uint64_t slot = std::min((magnitude >> (52 - m)) - (kRebias << m), (std::uint64_t{255} << m) - 1);
    if (magnitude - 1 < kSmall - 1) slot = small_magnitude(magnitude, m);  // and not zero
    slot = magnitude == kDoubleInfinity ? std::uint64_t{255} << m : slot;
    slot += all >> 63 << (8 + m);
    slot = magnitude > kDoubleInfinity ? static_cast<std::uint64_t>(bins.nan()) : slot;
    return static_cast<std::uint32_t>(magnitude == 0 ? static_cast<std::uint64_t>(bins.zero()) : slot);
  } else {
    const std::uint32_t all = float_bits(x), magnitude = all & 0x7FFFFFFFU;
    const std::uint32_t slot =
        magnitude > 0x7F800000U ? static_cast<std::uint32_t>(bins.nan()) : all >> (23 - m);
    return magnitude == 0 ? static_cast<std::uint32_t>(bins.zero()) : slot;
  }
}

/// Numbers that are handled at a time: their slots stay in the smallest cache.
constexpr std::size_t kBlock = 256;

/// Counters of one thread for a long stretch of numbers, all zero between calls. Neighbouring numbers use
/// separate counters, side by side: two increments of one counter would have to wait for each other.
class Counters {
 public:
  static constexpr int kShift = 2;  // the first counter of a slot is at slot << kShift
  static constexpr std::size_t kMost = std::size_t{1} << 31;  // numbers until they have to be taken

  /// Those of this thread.
  static Counters& mine(BitBins bins) {
    auto& counters = base::of_thread<Counters>();
    const std::size_t size = static_cast<std::size_t>(bins.slots()) << kShift;
    if (counters.all_.size() < size) counters.all_.resize(size);
    return counters;
  }

  /// Adds 1 for each of these first counters.
  void add(const std::uint32_t* firsts, std::size_t n) {
    std::uint32_t* const to = all_.data();
    const std::size_t whole = n - n % 4;
    for (std::size_t i = 0; i < whole; i += 4) {
      ++to[firsts[i]];
      ++(to + 1)[firsts[i + 1]];
      ++(to + 2)[firsts[i + 2]];
      ++(to + 3)[firsts[i + 3]];
    }
    for (std::size_t i = whole; i < n; ++i) ++to[firsts[i]];
  }

  /// Moves all to `counts`.
  void take(BitBins bins, std::int64_t* counts) {
    std::uint32_t* at = all_.data();
    for (std::int64_t slot = 0; slot < bins.slots(); ++slot, at += 4) {
      std::uint64_t pairs[2];
      std::memcpy(pairs, at, sizeof pairs);
      if ((pairs[0] | pairs[1]) == 0) continue;
      counts[slot] += std::int64_t{at[0]} + at[1] + at[2] + at[3];
      std::memset(at, 0, sizeof pairs);
    }
  }

 private:
  std::vector<std::uint32_t> all_;
};

/// The counts themselves, for stretches that are too short for `Counters`.
struct Counts {
  static constexpr int kShift = 0;

  void add(const std::uint32_t* slots, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) ++to[slots[i]];
  }

  std::int64_t* to;
};

/// Calls `count(x, n, to)`, where `to` takes slots and adds 1 to `counts` for each.
template <class T, class F>
void count_with(const T* x, std::size_t n, BitBins bins, std::int64_t* counts, const F& count) {
  if (n < 4 * static_cast<std::size_t>(bins.slots())) {
    Counts to{counts};
    return count(x, n, to);
  }
  Counters& to = Counters::mine(bins);
  for (; n != 0;) {
    const std::size_t part = std::min(n, Counters::kMost);
    count(x, part, to);
    to.take(bins, counts);
    x += part;
    n -= part;
  }
}

}  // namespace torchtap::reductions::detail
#endif

#ifdef TORCHTAP_HAVE_HIGHWAY

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kAhead = 4096;  // bytes: hardware prefetchers stop at page boundaries

#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM_A64
constexpr bool kConvertsHalf = true;  // with an instruction that is right for all numbers
#else
constexpr bool kConvertsHalf = false;
#endif

/// The types that are read a vector at a time. Other numbers are converted first: to `Wide<T>`.
template <class T>
constexpr bool kVectors = std::is_same_v<T, float> || std::is_same_v<T, double> ||
                          std::is_same_v<T, c10::BFloat16> || (std::is_same_v<T, c10::Half> && kConvertsHalf);

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, c10::Half>, float, double>;

template <class T>
Wide<T> widened(T x) {
  if constexpr (std::is_same_v<T, c10::Half>) {
    return bits_of<float>(float_bits(x));
  } else {
    return static_cast<double>(x);
  }
}

/// A vector of the bits of numbers of this type, and one of as many slots.
template <class T>
using Words = hn::ScalableTag<std::conditional_t<std::is_same_v<T, double>, std::uint64_t, std::uint32_t>>;
template <class T>
using Slots = hn::Rebind<std::uint32_t, Words<T>>;

/// The bits of Lanes(d) numbers; half types are widened to float32.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_bits(D d, const T* x) {
  if constexpr (std::is_same_v<T, c10::Half>) {
    const hn::Rebind<float, D> floats;
    const hn::Rebind<hwy::float16_t, D> half;
    return hn::BitCast(d, hn::PromoteTo(floats, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(x))));
  } else if constexpr (std::is_same_v<T, c10::BFloat16>) {
    const hn::Rebind<std::uint16_t, D> half;
    return hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(x))));
  } else {
    return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(x));
  }
}

/// Replaces the slots of those magnitudes of float64 that would be denormal as a float32.
template <class D, class V = hn::Vec<D>>
HWY_NOINLINE V with_small(D d, V magnitude, V slot, int mantissa_bits) {
  HWY_ALIGN std::uint64_t from[HWY_MAX_BYTES / sizeof(std::uint64_t)],
      to[HWY_MAX_BYTES / sizeof(std::uint64_t)];
  hn::Store(magnitude, d, from);
  hn::Store(slot, d, to);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    if (from[i] < kSmall) to[i] = small_magnitude(from[i], mantissa_bits);
  }
  return hn::Load(d, to);
}

/// Finds the slots of as many numbers as a vector has lanes.
template <class T>
class Finder {
 public:
  using D = Slots<T>;
  using V = hn::Vec<D>;

  explicit Finder(BitBins bins) : bins_(bins) {}

  /// `some` are the numbers that are neither zero nor NaN; the slots of others are meaningless.
  HWY_INLINE V find(const T* x, hn::Mask<D>& some, hn::Mask<D>& nan) const {
    const D d;
    if constexpr (std::is_same_v<T, double>) {
      const auto slot = find_all(x);
      nan = hn::Eq(slot, hn::Set(d, static_cast<std::uint32_t>(bins_.nan())));
      some = hn::Lt(slot, hn::Set(d, static_cast<std::uint32_t>(bins_.nan())));
      return slot;
    } else {
      const auto bits = load_bits(d, x);
      const auto infinity = hn::Set(d, 0x7F800000U);
      const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFU));
      nan = hn::Gt(magnitude, infinity);
      some = hn::Lt(hn::Sub(magnitude, hn::Set(d, 1U)), infinity);
      return hn::ShiftRightSame(bits, 23 - bins_.mantissa_bits);
    }
  }

  /// The slots of all numbers, also of zeros and NaN.
  HWY_INLINE V find_all(const T* x) const {
    const D d;
    if constexpr (std::is_same_v<T, double>) {
      const Words<T> wide;
      const auto set = [wide](std::int64_t number)
                           HWY_ATTR { return hn::Set(wide, static_cast<std::uint64_t>(number)); };
      const int bits = bins_.mantissa_bits;
      const auto all = load_bits(wide, x), infinity = hn::Set(wide, kDoubleInfinity);
      const auto sign = hn::Set(wide, std::uint64_t{1} << 63), magnitude = hn::AndNot(sign, all);
      auto slot = hn::Sub(hn::ShiftRightSame(magnitude, 52 - bits), hn::Set(wide, kRebias << bits));
      slot = hn::Min(slot, set(bins_.infinity() - 1));
      const auto small = hn::Lt(magnitude, hn::Set(wide, kSmall));
      const auto zero = hn::Eq(magnitude, hn::Zero(wide));
      if (HWY_UNLIKELY(!hn::AllFalse(wide, hn::AndNot(zero, small))))
        slot = with_small(wide, magnitude, slot, bits);
      slot = hn::IfThenElse(hn::Eq(magnitude, infinity), set(bins_.infinity()), slot);
      slot = hn::Add(slot, hn::ShiftRightSame(hn::And(all, sign), 55 - bits));
      slot = hn::IfThenElse(hn::Gt(magnitude, infinity), set(bins_.nan()), slot);
      return hn::TruncateTo(d, hn::IfThenElse(zero, set(bins_.zero()), slot));
    } else {
      hn::Mask<D> some, nan;
      const auto slot = find(x, some, nan);
      const auto special = hn::IfThenElse(nan, hn::Set(d, static_cast<std::uint32_t>(bins_.nan())),
                                          hn::Set(d, static_cast<std::uint32_t>(bins_.zero())));
      return hn::IfThenElse(some, slot, special);
    }
  }

 private:
  BitBins bins_;
};

/// Adds the slots of a stretch to `to`. Zeros, which may be most of the numbers, and NaN are counted a vector
/// at a time.
template <class T, class To>
void add_vectors(const T* x, std::size_t n, BitBins bins, std::int64_t* counts, To& to) {
  if constexpr (kVectors<T>) {
    const Slots<T> d;
    const std::size_t lanes = hn::Lanes(d);
    const Finder<T> finder(bins);
    HWY_ALIGN std::uint32_t slots[kBlock + 2 * HWY_MAX_BYTES / sizeof(std::uint32_t)];
    std::size_t filled = 0, others = 0, nan_count = 0, i = 0;
    for (; i + lanes <= n; i += lanes) {
      hwy::Prefetch(x + i + kAhead / sizeof(T));
      hn::Mask<Slots<T>> some, nan;
      const auto slot = hn::ShiftLeft<To::kShift>(finder.find(x + i, some, nan));
      hn::StoreU(hn::Compress(slot, some), d, slots + filled);
      const std::size_t found = hn::CountTrue(d, some);
      filled += found;
      others += lanes - found;
      nan_count += hn::CountTrue(d, nan);
      if (filled >= kBlock) {
        to.add(slots, kBlock);
        filled -= kBlock;
        hn::StoreU(hn::LoadU(d, slots + kBlock), d, slots);
      }
    }
    to.add(slots, filled);
    counts[bins.nan()] += static_cast<std::int64_t>(nan_count);
    counts[bins.zero()] += static_cast<std::int64_t>(others - nan_count);
    for (; i < n; ++i) ++counts[slot_of(x[i], bins)];
  } else {
    Wide<T> wide[kBlock];
    for (std::size_t i = 0; i < n; i += kBlock) {
      const std::size_t part = std::min(kBlock, n - i);
      std::transform(x + i, x + i + part, wide, widened<T>);
      add_vectors(wide, part, bins, counts, to);
    }
  }
}

template <class T>
void find_vectors(const T* x, std::size_t n, BitBins bins, std::uint32_t* slots) {
  if constexpr (kVectors<T>) {
    const Slots<T> d;
    const std::size_t lanes = hn::Lanes(d);
    const Finder<T> finder(bins);
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) hn::StoreU(finder.find_all(x + i), d, slots + i);
    for (; i < n; ++i) slots[i] = slot_of(x[i], bins);
  } else {
    Wide<T> wide[kBlock];
    for (std::size_t i = 0; i < n; i += kBlock) {
      const std::size_t part = std::min(kBlock, n - i);
      std::transform(x + i, x + i + part, wide, widened<T>);
      find_vectors(wide, part, bins, slots + i);
    }
  }
}

void count(c10::ScalarType type, const void* x, std::size_t n, BitBins bins, std::int64_t* counts) {
  with_number(type, [&](auto* typed) {
    count_with(static_cast<decltype(typed)>(const_cast<void*>(x)), n, bins, counts,
               [&](auto* from, std::size_t part, auto& to) { add_vectors(from, part, bins, counts, to); });
  });
}

void find(c10::ScalarType type, const void* x, std::size_t n, BitBins bins, std::uint32_t* slots) {
  with_number(type, [&](auto* typed) {
    find_vectors(static_cast<decltype(typed)>(const_cast<void*>(x)), n, bins, slots);
  });
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torchtap::reductions::detail {
namespace {

HWY_EXPORT(count);
HWY_EXPORT(find);

void count_bits(c10::ScalarType type, const void* x, std::size_t n, BitBins bins, std::int64_t* counts) {
  HWY_DYNAMIC_DISPATCH(count)(type, x, n, bins, counts);
}
void find_bits(c10::ScalarType type, const void* x, std::size_t n, BitBins bins, std::uint32_t* slots) {
  HWY_DYNAMIC_DISPATCH(find)(type, x, n, bins, slots);
}

}  // namespace
}  // namespace torchtap::reductions::detail
#endif

#else  // TORCHTAP_HAVE_HIGHWAY

namespace torchtap::reductions::detail {
namespace {

void find_bits(c10::ScalarType type, const void* x, std::size_t n, BitBins bins, std::uint32_t* slots) {
  with_number(type, [&](auto* typed) {
    const auto* const from = static_cast<decltype(typed)>(const_cast<void*>(x));
    for (std::size_t i = 0; i < n; ++i) slots[i] = slot_of(from[i], bins);
  });
}

void count_bits(c10::ScalarType type, const void* x, std::size_t n, BitBins bins, std::int64_t* counts) {
  with_number(type, [&](auto* typed) {
    count_with(static_cast<decltype(typed)>(const_cast<void*>(x)), n, bins, counts,
               [&](auto* from, std::size_t part, auto& to) {
                 std::uint32_t slots[kBlock];
                 for (std::size_t i = 0; i < part; i += kBlock) {
                   const std::size_t some = std::min(kBlock, part - i);
                   for (std::size_t k = 0; k < some; ++k)
                     slots[k] = slot_of(from[i + k], bins) << std::decay_t<decltype(to)>::kShift;
                   to.add(slots, some);
                 }
               });
  });
}

}  // namespace
}  // namespace torchtap::reductions::detail
#endif

#if !defined(TORCHTAP_HAVE_HIGHWAY) || HWY_ONCE
namespace torchtap::reductions::extend {

const BitKernels& bit_kernels() noexcept {
  static const BitKernels all{detail::count_bits, detail::find_bits};
  return all;
}

bool has_bits(c10::ScalarType type) noexcept {
  return detail::with_number(type, [](auto* /*typed*/) {});
}

}  // namespace torchtap::reductions::extend
#endif
