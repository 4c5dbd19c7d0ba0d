/// The loops that fingerprints are made by. Highway compiles this file once per instruction set and picks
/// one at run time; without Highway it is compiled once, as plain loops.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>

#include <torchtap/views/compare/detail/blocks.hpp>

#ifdef TORCHTAP_HAVE_HIGHWAY
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torchtap/views/compare/detail/blocks.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#endif

#ifndef TORCHTAP_VIEWS_COMPARE_DETAIL_BLOCKS_ONCE
#define TORCHTAP_VIEWS_COMPARE_DETAIL_BLOCKS_ONCE
namespace torchtap::views::compare::detail {

/// An 8-bit floating-point number, which a table converts.
struct Float8 {
  std::uint8_t bits;
};

template <class T>
constexpr bool kFloating =
    std::is_floating_point_v<T> || std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;
/// The type an element is read as: the narrower of float32 and float64 that represents all of its numbers.
template <class T>
using Number =
    std::conditional_t<std::is_same_v<T, double> ||
                           (std::is_integral_v<T> && (sizeof(T) > 2 || std::is_same_v<T, std::uint16_t>)),
                       double, float>;

template <class T>
Number<T> number_of(T x, const float* table) {
  if constexpr (std::is_same_v<T, Float8>) {
    return table[x.bits];
  } else {
    return static_cast<Number<T>>(x);
  }
}

/// Calls `f` with a pointer to elements of their own type.
template <class F>
auto with_type(Element type, const void* x, F&& f) {
  switch (type) {
    case Element::f32:
      return f(static_cast<const float*>(x));
    case Element::f64:
      return f(static_cast<const double*>(x));
    case Element::f16:
      return f(static_cast<const c10::Half*>(x));
    case Element::bf16:
      return f(static_cast<const c10::BFloat16*>(x));
    case Element::i8:
      return f(static_cast<const std::int8_t*>(x));
    case Element::i16:
      return f(static_cast<const std::int16_t*>(x));
    case Element::i32:
      return f(static_cast<const std::int32_t*>(x));
    case Element::i64:
      return f(static_cast<const std::int64_t*>(x));
    case Element::u8:
      return f(static_cast<const std::uint8_t*>(x));
    case Element::u16:
      return f(static_cast<const std::uint16_t*>(x));
    case Element::u32:
      return f(static_cast<const std::uint32_t*>(x));
    case Element::u64:
      return f(static_cast<const std::uint64_t*>(x));
    default:
      return f(static_cast<const Float8*>(x));
  }
}

struct Keys {
  alignas(64) std::array<std::uint32_t, kBlock> words;
};
inline const Keys& keys() {
  static const Keys all = [] {
    Keys made{};
    for (std::size_t i = 0; i < kBlock; ++i) made.words[i] = static_cast<std::uint32_t>(draw(1, i) >> 32);
    return made;
  }();
  return all;
}

template <class T>
struct Signs {
  alignas(64) std::array<T, 2 * kBlock> words;
};
/// The sign bits of the elements of a block as words of T, twice in a row.
template <class T>
const T* signs() {
  static const Signs<T> all = [] {
    Signs<T> made{};
    for (std::size_t i = 0; i < 2 * kBlock; ++i)
      made.words[i] = static_cast<T>(draw(2, i % kBlock) >> 63) << (8 * sizeof(T) - 1);
    return made;
  }();
  return all.words.data();
}

/// Adds the numbers of block c as float64, also NaN, infinities, and numbers that are too large or too small
/// for the fast loops.
template <class T>
void add_numbers_plainly(const T* x, int n, std::uint64_t c, Sums& sums) {
  const Turn turn(c);
  const std::uint32_t* const negative = signs<std::uint32_t>() + turn.signs();
  for (int i = 0; i < n; ++i) {
    const auto v = static_cast<double>(x[i]);
    if (!std::isfinite(v)) {
      ++(std::isnan(v) ? sums.nans : sums.infinities);
      continue;
    }
    sums.sketch[(turn.first() + i) % kLanes] += (negative[i] != 0) != turn.negative() ? -v : v;
    sums.sum[0] += v;
    sums.sum_sq[0] += v * v;
    sums.zeros += v == 0 ? 1 : 0;
    sums.least = std::min(sums.least, v);
    sums.greatest = std::max(sums.greatest, v);
  }
}

/// Adds the products of a block of words to the digest.
inline void add_products(std::uint64_t sum, std::uint64_t weighted, std::uint32_t words, std::uint64_t c,
                         BitSums& sums) {
  sums.digest[0] += base::split_mix(sum + draw(3, c));
  sums.digest[1] += base::split_mix(weighted + kGolden * words + draw(4, c));
}

/// The loops without Highway.
struct Plain {
  template <class T>
  static constexpr bool kReads = std::is_floating_point_v<T>;

  template <class T>
  static bool add_numbers(const T* /*x*/, int /*size*/, int /*n*/, std::uint64_t /*c*/, const char* /*next*/,
                          Sums& /*sums*/) {
    return false;
  }

  /// Adds `size` words, a multiple of 64, that elements of `kBytes` lie in.
  template <int kBytes>
  static void add_words(const void* x, int size, std::uint64_t c, const char* /*next*/, BitSums& sums) {
    std::uint64_t product = 0, weighted = 0;
    std::uint32_t words = 0, elements = 0;
    const auto& key = keys().words;
    for (int i = 0; i < size; i += 2) {
      std::uint32_t w[2];
      std::memcpy(w, static_cast<const char*>(x) + 4 * i, sizeof w);
      const auto k = static_cast<std::size_t>(i);
      const std::uint64_t p = std::uint64_t{w[0] + key[k]} * (w[1] + key[k + 1]);
      product += p;
      weighted += p * static_cast<std::uint64_t>((size - i + kRow - 1) / kRow);
      for (const std::uint32_t word : w) {
        words += word;
        sums.exclusive[0] ^= word;
        sums.either[0] |= word;
        for (int bit = 0; bit < 32; bit += 8 * std::min(kBytes, 4))
          elements += kBytes < 4 ? word >> bit & ((1U << (8 * kBytes % 32)) - 1) : word;
      }
    }
    add_products(product, weighted, words, c, sums);
    sums.elements += elements;
  }
};

/// The elements of one block of words, and of one block of the sketch at least.
template <class T>
constexpr int kTogether = kBlock * 4 / std::min<int>(4, sizeof(T));

/// Adds whole blocks with the loops of `Loops`, and the rest plainly.
template <class Loops, class T>
class Adder {
 public:
  Adder(const float* table, Sums& sums) : table_(table), sums_(sums) {}

  void add(const T* x, std::int64_t n, std::int64_t first) {
    for (std::int64_t i = 0; i < n; i += kTogether<T>)
      add_block(x + i, static_cast<int>(std::min<std::int64_t>(kTogether<T>, n - i)), first + i);
  }

 private:
  static constexpr int kPerWord = std::max<int>(1, 4 / sizeof(T)), kWords = std::max<int>(1, sizeof(T) / 4);

  void add_block(const T* x, int n, std::int64_t first) {
    // Both loops fetch half of the next but one block each: hardware prefetchers stop at page boundaries.
    const char* const next = reinterpret_cast<const char*>(x + 2 * kTogether<T>);
    alignas(64) T copy[kTogether<T>];
    const int size = (n + kLanes * kPerWord - 1) / (kLanes * kPerWord) * (kLanes * kPerWord);
    if (n != size) {
      std::memcpy(static_cast<void*>(copy), x, sizeof(T) * static_cast<std::size_t>(n));
      std::memset(static_cast<void*>(copy + n), 0, sizeof(T) * static_cast<std::size_t>(size - n));
      x = copy;
    }
    const BitSums before = sums_.bits;
    const std::uint64_t nans = sums_.nans;
    add_words(x, n, first, next);
    for (int i = 0; i < n; i += kBlock)
      add_numbers(x + i, std::min(kBlock, n - i), static_cast<std::uint64_t>(first + i) / kBlock,
                  next + sizeof(T) * static_cast<std::size_t>(kTogether<T> + i) / 2);
    if constexpr (kFloating<T>) {
      if (sums_.nans == nans) return;
      sums_.bits = before;  // again, with the same bits for each NaN
      std::transform(x, x + size, copy, [](T v) { return v == v ? v : T(std::nanf("")); });
      add_words(copy, n, first, next);
    }
  }

  void add_words(const T* x, int n, std::int64_t first, const char* next) {
    const int size = (n * kWords + kLanes * kPerWord - 1) / (kLanes * kPerWord) * kLanes;
    std::uint64_t c = static_cast<std::uint64_t>(first) / (kBlock * kPerWord) * kWords;
    for (int i = 0; i < size; i += kBlock, ++c)
      Loops::template add_words<sizeof(T)>(reinterpret_cast<const char*>(x) + 4 * i,
                                           std::min(kBlock, size - i), c, next + 2 * i, sums_.bits);
  }

  /// `x` has zeros after its n elements, up to a multiple of 64.
  void add_numbers(const T* x, int n, std::uint64_t c, const char* next) {
    const int size = (n + kLanes - 1) / kLanes * kLanes;
    if constexpr (Loops::template kReads<T>) {
      if (!Loops::add_numbers(x, size, n, c, next, sums_)) add_numbers_plainly(x, n, c, sums_);
    } else {
      alignas(64) Number<T> numbers[kBlock];
      for (int i = 0; i < n; ++i) numbers[i] = number_of(x[i], table_);
      std::fill(numbers + n, numbers + size, Number<T>(0));
      if (!Loops::add_numbers(numbers, size, n, c, next, sums_)) add_numbers_plainly(numbers, n, c, sums_);
    }
  }

  const float* table_;
  Sums& sums_;
};

}  // namespace torchtap::views::compare::detail
#endif

#ifdef TORCHTAP_HAVE_HIGHWAY

HWY_BEFORE_NAMESPACE();
namespace torchtap::views::compare::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
using Loops = Plain;
#else

#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM_A64
constexpr bool kConvertsHalf = true;  // with an instruction that is right for all numbers
#else
constexpr bool kConvertsHalf = false;
#endif

/// Numbers that are loaded as float32 or float64.
template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* x) {
  if constexpr (std::is_same_v<T, c10::Half>) {
    const hn::Rebind<hwy::float16_t, D> half;
    return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(x)));
  } else if constexpr (std::is_same_v<T, c10::BFloat16>) {
    const hn::RebindToUnsigned<D> bits;
    const hn::Rebind<std::uint16_t, D> half;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(
                              bits, hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(x)))));
  } else {
    return hn::LoadU(d, x);
  }
}

/// Adds a vector of numbers to as many float64, or to the half of that.
template <bool kHalf, class D, class V>
HWY_INLINE void add_to(double* to, D d, V v) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    hn::StoreU(hn::Add(hn::LoadU(d, to), v), d, to);
  } else {
    const hn::Repartition<double, D> wide;
    const hn::Half<D> half;
    const auto low = hn::PromoteTo(wide, hn::LowerHalf(half, v)),
               high = hn::PromoteTo(wide, hn::UpperHalf(half, v));
    hn::StoreU(hn::Add(hn::LoadU(wide, to), kHalf ? hn::Add(low, high) : low), wide, to);
    if constexpr (!kHalf) {
      double* const rest = to + hn::Lanes(wide);
      hn::StoreU(hn::Add(hn::LoadU(wide, rest), high), wide, rest);
    }
  }
}

/// The sum of unsigned lanes; Highway's own overflows signed lanes with some compilers.
template <class D>
HWY_INLINE hn::TFromD<D> total(D d, hn::Vec<D> v) {
  alignas(64) hn::TFromD<D> lanes[64 / sizeof(hn::TFromD<D>)];
  hn::Store(v, d, lanes);
  return std::accumulate(lanes, lanes + hn::Lanes(d), hn::TFromD<D>{0});
}

/// Whether `size` numbers are all zero.
template <class T>
bool all_zero(const T* x, int size) {
  const hn::CappedTag<Number<T>, 64 / sizeof(Number<T>)> d;
  auto any = hn::Zero(d);
  for (int i = 0; i < size; i += static_cast<int>(hn::Lanes(d))) any = hn::Or(any, load(d, x + i));
  return hn::AllTrue(d, hn::Eq(any, hn::Zero(d)));
}

template <bool kPadded, class T>
bool add_numbers(const T* x, int size, int real, std::uint64_t c, const char* next, Sums& sums) {
  using N = Number<T>;
  using Bits = std::conditional_t<sizeof(N) == 8, std::uint64_t, std::uint32_t>;
  const hn::CappedTag<N, 64 / sizeof(N)> d;
  const hn::RebindToSigned<decltype(d)> whole;
  const int n = static_cast<int>(hn::Lanes(d));
  constexpr int kSize = sizeof(T);
  constexpr N kInfinity = std::numeric_limits<N>::infinity();
  const Turn turn(c);
  const N* const negative = reinterpret_cast<const N*>(signs<Bits>() + turn.signs());
  alignas(64) N lanes[2 * kLanes];  // the second half is the first
  auto sum = hn::Zero(d), square = hn::Zero(d);
  auto least = hn::Set(d, kInfinity), greatest = hn::Neg(least);
  auto zeros = hn::Zero(whole);
  for (int l = 0; l < kLanes; l += 2 * n) {
    auto first = hn::Zero(d), second = first, sum_too = first, square_too = first;
    for (int i = l; i < size; i += kLanes) {
      if (!kPadded && l * kSize % 128 == 0)
        hwy::Prefetch(next + l * kSize * 8 + (i - l));  // NOLINT: in a block
      const auto v = load(d, x + i), u = load(d, x + i + n);
      first = hn::Add(first, hn::Xor(v, hn::LoadU(d, negative + i)));
      second = hn::Add(second, hn::Xor(u, hn::LoadU(d, negative + i + n)));
      sum = hn::Add(sum, v);
      sum_too = hn::Add(sum_too, u);
      square = hn::MulAdd(v, v, square);
      square_too = hn::MulAdd(u, u, square_too);
      auto is_zero = hn::Eq(v, hn::Zero(d)), is_zero_too = hn::Eq(u, hn::Zero(d));
      if constexpr (kPadded) {
        const auto in = hn::FirstN(d, static_cast<std::size_t>(std::max(0, real - i)));
        const auto in_too = hn::FirstN(d, static_cast<std::size_t>(std::max(0, real - i - n)));
        least = hn::Min(least, hn::Min(hn::IfThenElse(in, v, least), hn::IfThenElse(in_too, u, least)));
        greatest =
            hn::Max(greatest, hn::Max(hn::IfThenElse(in, v, greatest), hn::IfThenElse(in_too, u, greatest)));
        is_zero = hn::And(is_zero, in);
        is_zero_too = hn::And(is_zero_too, in_too);
      } else {
        least = hn::Min(least, hn::Min(v, u));
        greatest = hn::Max(greatest, hn::Max(v, u));
      }
      zeros = hn::Sub(zeros, hn::VecFromMask(whole, hn::RebindMask(whole, is_zero)));
      zeros = hn::Sub(zeros, hn::VecFromMask(whole, hn::RebindMask(whole, is_zero_too)));
    }
    for (N* const to : {lanes + l, lanes + kLanes + l}) {
      hn::Store(first, d, to);
      hn::Store(second, d, to + n);
    }
    sum = hn::Add(sum, sum_too);
    square = hn::Add(square, square_too);
  }
  // NaN, infinities, and squares that are too large or, all of them, too small.
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Lt(square, hn::Set(d, kInfinity))))) return false;
  const N small = sizeof(N) == 8 ? N(1e-270) : N(1e-27);
  if (HWY_UNLIKELY(hn::AllTrue(d, hn::Lt(square, hn::Set(d, small)))) && !all_zero(x, size)) return false;
  sums.least = std::min<double>(sums.least, hn::GetLane(hn::MinOfLanes(d, least)));
  sums.greatest = std::max<double>(sums.greatest, hn::GetLane(hn::MaxOfLanes(d, greatest)));
  sums.zeros += static_cast<std::uint64_t>(hn::GetLane(hn::SumOfLanes(whole, zeros)));
  add_to<true>(sums.sum, d, sum);
  add_to<true>(sums.sum_sq, d, square);
  const auto sign = hn::Set(d, turn.negative() ? N(-1) : N(1));
  for (int l = 0; l < kLanes; l += n)
    add_to<false>(sums.sketch + l, d, hn::Mul(hn::LoadU(d, lanes + kLanes - turn.first() + l), sign));
  return true;
}

struct Loops {
  template <class T>
  static constexpr bool kReads = std::is_floating_point_v<T> || std::is_same_v<T, c10::BFloat16> ||
                                 (std::is_same_v<T, c10::Half> && kConvertsHalf);

  template <class T>
  static bool add_numbers(const T* x, int size, int n, std::uint64_t c, const char* next, Sums& sums) {
    return n == size ? HWY_NAMESPACE::add_numbers<false>(x, size, n, c, next, sums)
                     : HWY_NAMESPACE::add_numbers<true>(x, size, n, c, next, sums);
  }

  template <int kBytes>
  static void add_words(const void* x, int size, std::uint64_t c, const char* next, BitSums& sums) {
    const hn::CappedTag<std::uint32_t, kRow> d;
    const hn::Repartition<std::uint64_t, decltype(d)> wide;
    const hn::Repartition<std::uint8_t, decltype(d)> bytes;
    const auto* const w = static_cast<const std::uint32_t*>(x);
    const std::uint32_t* const key = keys().words.data();
    const int n = static_cast<int>(hn::Lanes(d));
    auto product = hn::Zero(wide), weighted = product, in_bytes = product;
    auto words = hn::Zero(d), halves = words;
    for (int k = 0; k < kRow; k += n) {
      auto products = hn::Zero(wide), by_rows = products;
      auto exclusive = hn::Load(d, sums.exclusive + k), either = hn::Load(d, sums.either + k);
      for (int i = k; i < size; i += kRow) {
        if (k == 0 && i % (2 * kRow) == 0) hwy::Prefetch(next + 2 * i);  // NOLINT: in a block
        const auto v = hn::LoadU(d, w + i), s = hn::Add(v, hn::Load(d, key + i));
        products =
            hn::Add(products, hn::MulEven(s, hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, s)))));
        by_rows = hn::Add(by_rows, products);
        words = hn::Add(words, v);
        exclusive = hn::Xor(exclusive, v);
        either = hn::Or(either, v);
        if constexpr (kBytes == 2) halves = hn::Add(halves, hn::ShiftRight<16>(v));
        if constexpr (kBytes == 1) in_bytes = hn::Add(in_bytes, hn::SumsOf8(hn::BitCast(bytes, v)));
      }
      hn::Store(exclusive, d, sums.exclusive + k);
      hn::Store(either, d, sums.either + k);
      product = hn::Add(product, products);
      weighted = hn::Add(weighted, by_rows);
    }
    const std::uint32_t in_all = total(d, words);
    add_products(total(wide, product), total(wide, weighted), in_all, c, sums);
    sums.elements += kBytes == 1   ? static_cast<std::uint32_t>(total(wide, in_bytes))
                     : kBytes == 2 ? in_all - 0xFFFFU * total(d, halves)
                                   : in_all;
  }
};
#endif

void add_blocks(Element type, const void* x, std::int64_t n, std::int64_t first, const float* table,
                Sums& sums) {
  with_type(type, x, [&](auto* typed) {
    Adder<Loops, std::remove_const_t<std::remove_pointer_t<decltype(typed)>>>(table, sums)
        .add(typed, n, first);
  });
}

}  // namespace torchtap::views::compare::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torchtap::views::compare::detail {

HWY_EXPORT(add_blocks);

void add(Element type, const void* x, std::int64_t n, std::int64_t first, const float* table, Sums& sums) {
  HWY_DYNAMIC_DISPATCH(add_blocks)(type, x, n, first, table, sums);
}

}  // namespace torchtap::views::compare::detail
#endif

#else  // TORCHTAP_HAVE_HIGHWAY

namespace torchtap::views::compare::detail {

void add(Element type, const void* x, std::int64_t n, std::int64_t first, const float* table, Sums& sums) {
  with_type(type, x, [&](auto* typed) {
    Adder<Plain, std::remove_const_t<std::remove_pointer_t<decltype(typed)>>>(table, sums)
        .add(typed, n, first);
  });
}

}  // namespace torchtap::views::compare::detail
#endif

#if !defined(TORCHTAP_HAVE_HIGHWAY) || HWY_ONCE
namespace torchtap::views::compare::detail {

void take(Element type, const void* x, const std::int64_t* places, int n, const float* table, float* to) {
  with_type(type, x, [&](auto* typed) {
    for (int k = 0; k < n; ++k) {
      const auto found = static_cast<float>(number_of(typed[places[k]], table));
      to[k] = found == found ? found : std::numeric_limits<float>::quiet_NaN();
    }
  });
}

}  // namespace torchtap::views::compare::detail
#endif
