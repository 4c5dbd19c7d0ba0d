/// Counts how often each byte occurs by its bits, without a counter per value.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_KERNELS_PLANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_KERNELS_PLANES_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_KERNELS_PLANES_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_KERNELS_PLANES_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Up to this many slots, counting bits is faster than a counter for each slot.
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

/// Swaps the upper `kBits` of each 2 * kBits bits of `a` with the lower ones of `b`.
template <int kBits, class D, class V = hn::Vec<D>>
HWY_INLINE void swap_bits(D d, V& a, V& b) {
  constexpr std::uint64_t kLower = ~std::uint64_t{0} / ((std::uint64_t{1} << kBits) + 1);
  const auto both = hn::And(hn::Xor(hn::ShiftRight<kBits>(a), b), hn::Set(d, kLower));
  b = hn::Xor(b, both);
  a = hn::Xor(a, hn::ShiftLeft<kBits>(both));
}

/// Transposes eight vectors of bytes: the first receives the lowest bit of every byte, and so on.
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
  return hn::PopulationCount(v);  // a single instruction
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::SumsOf8(hn::PopulationCount(hn::BitCast(bytes, v)));
#endif
}

/// For each s below `size`, rounded up to a multiple of eight, adds the number of values in the planes whose
/// slot has all bits of s set.
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

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
