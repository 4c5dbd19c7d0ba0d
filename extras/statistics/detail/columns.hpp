#pragma once

/// Selects, compares and sorts the columns of [numbers, kept elements] in the CPU's memory, in plain C++.

#include <c10/core/ScalarType.h>

#include <cstdint>

#include <torchtap/reductions/extend/own_reduction.hpp>

namespace torchtap::statistics::detail {

using reductions::extend::Memory;

/// The k best of each kept element, best first, all filled: values [k, width] of `type`, and the rows that
/// they are from, of the same shape. Neighbours in a column are `stride` apart.
struct Best {
  c10::ScalarType type;
  void* values;
  std::int64_t* rows;
  std::int64_t k, width, stride;
  bool largest;
};

/// Whether `offer` compares samples of this dtype with values of that one.
bool can_offer(c10::ScalarType sample, c10::ScalarType values) noexcept;
/// Takes each element of a row, [width], into the list of its column if it is better than the last there:
/// larger, where NaN is larger than any number, or smaller. Equal ones do not count as better, so that the
/// earlier row wins.
void offer(const Best& best, const Memory& row, std::int64_t index);
/// Offers elements of one column, of width 1, which are rows from `index` on.
void offer_run(const Best& best, const Memory& run, std::int64_t index);

/// The least and largest number of each kept element, and how many were NaN.
struct Extrema {
  void *min, *max;
  std::int64_t* nan;
};
/// Copies a row to `to`, of float32 (not for float64) or float64, and takes it into the extrema of that
/// dtype.
void copy_row(const Memory& row, c10::ScalarType dtype, void* to, const Extrema& extrema);

/// Whether there is a finite number of a magnitude above `limit`.
bool has_above(const double* x, std::int64_t n, double limit) noexcept;

/// Sorts the columns [from, from + width) of [n, stride] ascending, NaN last, and writes one of each two
/// neighbours of the result to [n / 2, stride]: the second where bit i % 64 of `odd` is set for the i-th of
/// these columns. n is even. `T` is float or double.
template <class T>
void halve_columns(const T* values, std::int64_t n, std::int64_t stride, std::int64_t from,
                   std::int64_t width, std::uint64_t odd, T* to);

}  // namespace torchtap::statistics::detail
