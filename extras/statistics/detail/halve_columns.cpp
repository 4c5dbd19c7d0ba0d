// Sorts neighbouring columns side by side with Highway's vectors, which picks an instruction set at run time.

#include <torchtap/statistics/detail/halve_columns.hpp>

#ifdef TORCHTAP_HAVE_HIGHWAY

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torchtap/statistics/detail/halve_columns.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace torchtap::statistics::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Key = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
template <class T>
using Keys = hn::CappedTag<Key<T>, kSortedBytes / 2 / sizeof(T)>;

/// Maps the bits of numbers to integers in the same order, and back: negative numbers are ordered by the
/// complement of their magnitude.
template <class D>
HWY_INLINE hn::Vec<D> ordered(D d, hn::Vec<D> bits) {
  const auto magnitude = hn::Set(d, std::numeric_limits<hn::TFromD<D>>::max());
  return hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), magnitude));
}

/// Calls `exchange(i, j)`, i < j, such that the smaller of each two goes to `i`, until n things are sorted:
/// Batcher's merge exchange (Knuth, The Art of Computer Programming, 5.2.2M).
template <class F>
HWY_INLINE void merge_exchange(std::size_t n, const F& exchange) {
  std::size_t top = 1;
  while (2 * top < n) top *= 2;
  for (std::size_t p = n > 1 ? top : 0; p > 0; p /= 2) {
    std::size_t r = 0, d = p;
    for (std::size_t q = top;; q /= 2) {
      for (std::size_t run = r; run + d < n; run += 2 * p) {  // of all i in which bit p is as in r
        for (std::size_t i = run, end = std::min(run + p, n - d); i < end; ++i) exchange(i, i + d);
      }
      if (q == p) break;
      d = q - p;
      r = p;
    }
  }
}

/// Halves at most `kVectors` vectors of columns.
template <std::size_t kVectors, class T>
void halve_tile(const T* x, std::size_t rows, std::size_t width, std::size_t stride, std::uint64_t odd, T* to,
                Key<T>* keys) {
  const Keys<T> d;
  const hn::RebindToFloat<Keys<T>> numbers;
  const std::size_t lanes = hn::Lanes(d), tile = kVectors * lanes;
  constexpr std::size_t kMost = kSortedBytes / sizeof(T);
  const std::size_t end = (rows - 1) * stride + width;
  HWY_ALIGN T padded[kMost] = {};
  for (std::size_t row = 0; row < rows; ++row) {
    const T* from = x + row * stride;
    // Lanes beyond the columns are ignored.
    if (row * stride + tile > end) from = static_cast<const T*>(std::memcpy(padded, from, width * sizeof(T)));
    for (std::size_t i = 0; i < tile; i += lanes) {
      const auto number = hn::LoadU(numbers, from + i);
      const auto last = hn::Set(d, std::numeric_limits<Key<T>>::max());
      const auto key = ordered(d, hn::BitCast(d, number));
      hn::StoreU(hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(number)), last, key), d, keys + row * tile + i);
    }
  }
  merge_exchange(rows, [&](std::size_t low, std::size_t high) HWY_ATTR {
    for (std::size_t i = 0; i < tile; i += lanes) {
      const auto a = hn::LoadU(d, keys + low * tile + i), b = hn::LoadU(d, keys + high * tile + i);
      hn::StoreU(hn::Min(a, b), d, keys + low * tile + i);
      hn::StoreU(hn::Max(a, b), d, keys + high * tile + i);
    }
  });
  HWY_ALIGN Key<T> second[kMost];
  for (std::size_t i = 0; i < tile; ++i) second[i] = static_cast<Key<T>>(odd >> i & 1);
  for (std::size_t row = 0; 2 * row < rows; ++row) {
    T* const into = width == tile ? to + row * stride : padded;
    for (std::size_t i = 0; i < tile; i += lanes) {
      const Key<T>* const pair = keys + 2 * row * tile + i;
      const auto is_second = hn::Ne(hn::LoadU(d, second + i), hn::Zero(d));
      const auto key = hn::IfThenElse(is_second, hn::LoadU(d, pair + tile), hn::LoadU(d, pair));
      hn::StoreU(hn::BitCast(numbers, ordered(d, key)), numbers, into + i);
    }
    if (width != tile) std::memcpy(to + row * stride, padded, width * sizeof(T));
  }
}

template <class T>
void halve_columns_of(const T* x, std::size_t rows, std::size_t width, std::size_t stride, std::uint64_t odd,
                      T* to, void* scratch) {
  auto* const keys = static_cast<Key<T>*>(scratch);
  const std::size_t lanes = hn::Lanes(Keys<T>());
  const auto tile = [&](auto vectors, std::size_t column, std::size_t columns) {
    const std::size_t turn = column % 64;
    const std::uint64_t bits = turn == 0 ? odd : odd >> turn | odd << (64 - turn);
    halve_tile<vectors.value>(x + column, rows, columns, stride, bits, to + column, keys);
  };
  const std::integral_constant<std::size_t, 1> one;
  const std::integral_constant<std::size_t, 2> two;
  std::size_t column = 0;
  for (; column + 2 * lanes <= width; column += 2 * lanes) tile(two, column, 2 * lanes);
  if (column + lanes <= width) tile(one, std::exchange(column, column + lanes), lanes);
  if (column == width) return;
  // Some columns of the last vector are done twice, where there are as many.
  if (width < lanes) return tile(one, 0, width);
  tile(one, width - lanes, lanes);
}

void halve(c10::ScalarType type, const void* x, std::size_t rows, std::size_t width, std::size_t stride,
           std::uint64_t odd, void* to, void* scratch) {
  const auto halve_of = [&](auto zero) {
    using T = decltype(zero);
    halve_columns_of(static_cast<const T*>(x), rows, width, stride, odd, static_cast<T*>(to), scratch);
  };
  if (type == c10::ScalarType::Double) return halve_of(0.0);
  halve_of(0.0F);
}

}  // namespace torchtap::statistics::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torchtap::statistics::detail {
namespace {
HWY_EXPORT(halve);
}  // namespace

bool has_networks() noexcept {
  return true;
}

void halve_by_network(c10::ScalarType type, const void* x, std::size_t rows, std::size_t width,
                      std::size_t stride, std::uint64_t odd, void* to, void* scratch) {
  HWY_DYNAMIC_DISPATCH(halve)(type, x, rows, width, stride, odd, to, scratch);
}

}  // namespace torchtap::statistics::detail
#endif

#else  // TORCHTAP_HAVE_HIGHWAY

namespace torchtap::statistics::detail {

bool has_networks() noexcept {
  return false;
}

void halve_by_network(c10::ScalarType /*type*/, const void* /*x*/, std::size_t /*rows*/,
                      std::size_t /*width*/, std::size_t /*stride*/, std::uint64_t /*odd*/, void* /*to*/,
                      void* /*scratch*/) {}

}  // namespace torchtap::statistics::detail
#endif
