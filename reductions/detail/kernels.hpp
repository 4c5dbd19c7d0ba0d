#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <torchtap/reductions/detail/summary.hpp>

namespace torchtap::reductions::detail {

/// Where the bins of a histogram lie. `slot` of x is 0 below, 1 ... bins inside, bins + 1 above, bins + 2 for
/// NaN.
struct Bins {
  std::int64_t bins;
  double low, high;
  const double*
      edges;  ///< [bins + 1]: bin i counts edges[i] <= x < edges[i + 1], the last one its upper edge too
};

/// Loops over plain memory of float32, float64, float16 or bfloat16, one thread each, for the widest vectors
/// that the processor has.
struct Kernels {
  /// Of `n` elements in a row.
  void (*run)(c10::ScalarType type, const void* x, std::size_t n, Needs needs, Summary* out);
  /// All there is to know of each of `width` columns, at most `kColumns`; rows are `stride` elements apart.
  void (*columns)(c10::ScalarType type, const void* x, std::size_t rows, std::size_t width,
                  std::size_t stride, Summary* out);
  /// Adds one element to each of `n` means and sums of powers of deviations, as the `count`-th.
  void (*fold_moments)(c10::ScalarType type, const void* x, std::size_t n, double count, double* mean,
                       double* m2, double* m3, double* m4);
  /// Adds to counts[slot] for each of `n` elements.
  void (*count_bins)(c10::ScalarType type, const void* x, std::size_t n, const Bins& bins,
                     std::int64_t* counts);

  static constexpr std::size_t kColumns = 256;
};

/// Null in a build without them.
const Kernels* kernels() noexcept;

}  // namespace torchtap::reductions::detail
