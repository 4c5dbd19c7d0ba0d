// Implements the loops over columns so that the compiler vectorises them.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <torchtap/base/of_thread.hpp>
#include <torchtap/statistics/detail/columns.hpp>
#include <torchtap/statistics/detail/halve_columns.hpp>
#include <torchtap/statistics/detail/sort.hpp>

// The loops are vectorised by the compiler (-O3 for this file).
namespace torchtap::statistics::detail {
namespace {

constexpr std::int64_t kCompared = 32;  // elements that are compared before any of them is taken

/// Calls `f` with a null pointer to the C++ type of a list's values.
template <class F>
void with_value_type(c10::ScalarType type, F&& f) {
  switch (type) {
    case c10::ScalarType::Float:
      return f(static_cast<float*>(nullptr));
    case c10::ScalarType::Double:
      return f(static_cast<double*>(nullptr));
    case c10::ScalarType::Long:
      return f(static_cast<std::int64_t*>(nullptr));
    case c10::ScalarType::Int:
      return f(static_cast<std::int32_t*>(nullptr));
    case c10::ScalarType::Short:
      return f(static_cast<std::int16_t*>(nullptr));
    case c10::ScalarType::Char:
      return f(static_cast<std::int8_t*>(nullptr));
    default:  // bytes and bool
      return f(static_cast<std::uint8_t*>(nullptr));
  }
}

template <class T>
bool is_nan(T x) noexcept {
  return x != x;
}

template <bool kLargest, class T>
bool beats(T x, T y) noexcept {
  if constexpr (kLargest) return x > y || (is_nan(x) && !is_nan(y));
  return x < y || (is_nan(y) && !is_nan(x));
}

/// True if x beats y, and perhaps otherwise, but in one comparison.
template <bool kLargest, class T>
bool may_beat(T x, T y) noexcept {
  if constexpr (!std::is_floating_point_v<T>) return kLargest ? x > y : x < y;
  return kLargest ? !(x <= y) : !(x >= y);
}

/// Puts a number that beats the last of column `column` in its place.
template <bool kLargest, class T>
void insert(const Best& best, std::int64_t column, T x, std::int64_t index) noexcept {
  T* const values = static_cast<T*>(best.values) + column;
  std::int64_t* const rows = best.rows + column;
  std::int64_t place = best.k - 1;
  for (; place > 0 && beats<kLargest>(x, values[(place - 1) * best.stride]); --place) {
    values[place * best.stride] = values[(place - 1) * best.stride];
    rows[place * best.stride] = rows[(place - 1) * best.stride];
  }
  values[place * best.stride] = x;
  rows[place * best.stride] = index;
}

template <bool kLargest, class T>
bool any_may_beat(const T* x, const T* last, std::int64_t n) noexcept {
  unsigned char any = 0;
  for (std::int64_t i = 0; i < n; ++i) any |= may_beat<kLargest>(x[i], last[i]) ? 1 : 0;
  return any != 0;
}

template <bool kLargest, class T>
void offer_row(const Best& best, const T* x, std::int64_t from, std::int64_t n, std::int64_t index) {
  const T* const last = static_cast<const T*>(best.values) + (best.k - 1) * best.stride + from;
  const auto take = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (beats<kLargest>(x[i], last[i])) insert<kLargest>(best, from + i, x[i], index);
    }
  };
  std::int64_t i = 0;
  for (; i + kCompared <= n; i += kCompared) {
    if (any_may_beat<kLargest>(x + i, last + i, kCompared)) take(i, i + kCompared);
  }
  take(i, n);
}

template <bool kLargest, class T>
void offer_elements(const Best& best, const T* x, std::int64_t n, std::int64_t index) {
  const T* const last = static_cast<const T*>(best.values) + (best.k - 1) * best.stride;
  const auto take = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (beats<kLargest>(x[i], *last)) insert<kLargest>(best, 0, x[i], index + i);
    }
  };
  std::int64_t i = 0;
  for (; i + kCompared <= n; i += kCompared) {
    const T least = *last;
    unsigned char any = 0;
    for (std::int64_t j = i; j < i + kCompared; ++j) any |= may_beat<kLargest>(x[j], least) ? 1 : 0;
    if (any != 0) take(i, i + kCompared);
  }
  take(i, n);
}

/// Calls `f(elements, from, n)` with all elements as `T`, which are converted in pieces if they are of a half
/// type.
template <class T, class F>
void each_piece(const Memory& x, const F& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (x.type != c10::ScalarType::Float) {
      constexpr std::int64_t kPiece = 256;
      float piece[kPiece];
      for (std::int64_t i = 0; i < x.numel; i += kPiece) {
        const std::int64_t n = std::min(kPiece, x.numel - i);
        reductions::extend::copy({x.type, x.data + i * 2, n}, c10::ScalarType::Float, piece);
        f(static_cast<const float*>(piece), i, n);
      }
      return;
    }
  }
  f(reinterpret_cast<const T*>(x.data), 0, x.numel);
}

}  // namespace

bool can_offer(c10::ScalarType sample, c10::ScalarType values) noexcept {
  switch (sample) {
    case c10::ScalarType::Float:
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
      return values == c10::ScalarType::Float;
    case c10::ScalarType::Double:
    case c10::ScalarType::Long:
    case c10::ScalarType::Int:
    case c10::ScalarType::Short:
    case c10::ScalarType::Char:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:
      return values == sample;
    default:
      return false;
  }
}

void offer(const Best& best, const Memory& row, std::int64_t index) {
  with_value_type(best.type, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    each_piece<T>(row, [&](const T* x, std::int64_t from, std::int64_t n) {
      if (best.largest) {
        offer_row<true>(best, x, from, n, index);
      } else {
        offer_row<false>(best, x, from, n, index);
      }
    });
  });
}

void offer_run(const Best& best, const Memory& run, std::int64_t index) {
  with_value_type(best.type, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    each_piece<T>(run, [&](const T* x, std::int64_t from, std::int64_t n) {
      if (best.largest) {
        offer_elements<true>(best, x, n, index + from);
      } else {
        offer_elements<false>(best, x, n, index + from);
      }
    });
  });
}

namespace {

template <class T>
void take_row(const T* __restrict x, std::int64_t n, T* __restrict min, T* __restrict max,
              std::int64_t* nan) {
  unsigned char any = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    min[i] = x[i] < min[i] ? x[i] : min[i];
    max[i] = x[i] > max[i] ? x[i] : max[i];
  }
  for (std::int64_t i = 0; i < n; ++i) any |= is_nan(x[i]) ? 1 : 0;
  if (any == 0) return;
  for (std::int64_t i = 0; i < n; ++i) nan[i] += is_nan(x[i]) ? 1 : 0;
}

template <class T>
void sort_numbers(T* x, std::int64_t n) {
  auto& sorter = base::of_thread<Sorter<T>>();
  const auto* const keys = sorter(x, static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) x[i] = sorter.number(keys[i]);
}

}  // namespace

void copy_row(const Memory& row, c10::ScalarType dtype, void* to, const Extrema& extrema) {
  reductions::extend::copy(row, dtype, to);
  const auto take = [&](auto* x) {
    using T = std::remove_pointer_t<decltype(x)>;
    take_row(x, row.numel, static_cast<T*>(extrema.min), static_cast<T*>(extrema.max), extrema.nan);
  };
  if (dtype == c10::ScalarType::Double) return take(static_cast<double*>(to));
  take(static_cast<float*>(to));
}

bool has_above(const double* x, std::int64_t n, double limit) noexcept {
  unsigned char any = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double magnitude = std::fabs(x[i]);
    any |= (magnitude > limit ? 1 : 0) & (magnitude <= std::numeric_limits<double>::max() ? 1 : 0);
  }
  return any != 0;
}

template <class T>
void halve_columns(const T* values, std::int64_t n, std::int64_t stride, std::int64_t from,
                   std::int64_t width, std::uint64_t odd, T* to) {
  constexpr std::int64_t kFew = 8;        // columns: fewer are sorted one after the other
  constexpr std::int64_t kNetwork = 512;  // rows: more are, too, because a network's work grows faster
  constexpr std::int64_t kFewRows = 32;   // which a network sorts sooner, however few columns there are
  struct Columns;
  auto& memory = base::of_thread<std::vector<T>, Columns>();
  const auto reserve = [&memory](std::size_t size) {  // to resize would fill what it grows by each time
    if (memory.size() < size) memory.resize(size);
  };
  const T* const x = values + from;
  T* const out = to + from;
  if (has_networks() && n <= (width < kFew ? kFewRows : kNetwork)) {
    reserve(static_cast<std::size_t>(n) * kSortedBytes / sizeof(T));
    halve_by_network(c10::CppTypeToScalarType<T>::value, x, static_cast<std::size_t>(n),
                     static_cast<std::size_t>(width), static_cast<std::size_t>(stride), odd, out,
                     memory.data());
    return;
  }
  reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t row = 0; row < n; ++row) memory[static_cast<std::size_t>(row)] = x[row * stride + i];
    sort_numbers(memory.data(), n);
    const auto second = static_cast<std::int64_t>(odd >> i % 64 & 1);
    for (std::int64_t row = 0; 2 * row < n; ++row)
      out[row * stride + i] = memory[static_cast<std::size_t>(2 * row + second)];
  }
}

template void halve_columns(const float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                            std::uint64_t, float*);
template void halve_columns(const double*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                            std::uint64_t, double*);

}  // namespace torchtap::statistics::detail
