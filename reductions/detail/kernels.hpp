#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include <torchtap/reductions/detail/summary.hpp>

namespace torchtap::reductions::detail {

/// The bins of a histogram. Slot 0 counts values below the range, slots 1 ... bins those inside, bins + 1
/// those above, and bins + 2 NaN.
struct Bins {
  std::int64_t bins;
  double low, high;
  const double*
      edges;  ///< [bins + 1]: bin i counts edges[i] <= x < edges[i + 1]; the last bin includes its upper edge
};

/// Single-threaded loops over contiguous float32, float64, float16 or bfloat16, compiled for the widest
/// vectors that the processor has.
struct Kernels {
  /// Summarises `n` consecutive elements.
  void (*run)(c10::ScalarType type, const void* x, std::size_t n, Needs needs, Summary* out);
  /// Summarises each of `width` columns, at most `kColumns`, moments and zeros included; rows are `stride`
  /// elements apart.
  void (*columns)(c10::ScalarType type, const void* x, std::size_t rows, std::size_t width,
                  std::size_t stride, Summary* out);
  /// Adds one element to each of `n` means and sums of powers of deviations, as the `count`-th.
  void (*fold_moments)(c10::ScalarType type, const void* x, std::size_t n, double count, double* mean,
                       double* m2, double* m3, double* m4);
  /// Increments counts[slot] for each of `n` elements.
  void (*count_bins)(c10::ScalarType type, const void* x, std::size_t n, const Bins& bins,
                     std::int64_t* counts);

  static constexpr std::size_t kColumns = 256;
};

/// Null in a build without kernels.
const Kernels* kernels() noexcept;

}  // namespace torchtap::reductions::detail
