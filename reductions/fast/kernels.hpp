#pragma once

/// Declares the vectorised, single-threaded loops over contiguous numbers.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include <torchtap/reductions/fast/bin_edges.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions::detail {

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
  /// Adds one to the counter of each of `n` elements.
  void (*count_bins)(c10::ScalarType type, const void* x, std::size_t n, const BinEdges& edges,
                     std::int64_t* counts);
  /// Counts with separate counters for each element; counters of neighbours lie one after another.
  void (*count_columns)(c10::ScalarType type, const void* x, std::size_t n, const BinEdges& edges,
                        std::int64_t* counts);

  /// Writes the transpose of `rows` rows of `width` elements, `stride` apart, of 1, 2, 4 or 8 bytes: [width,
  /// rows].
  void (*transpose)(std::size_t item, const void* x, std::size_t rows, std::size_t width, std::size_t stride,
                    void* to);

  static constexpr std::size_t kColumns = 256;
};

/// Null in a build without kernels.
const Kernels* kernels() noexcept;

/// For tests: the instruction sets that kernels were compiled for and this processor has, as bits.
std::int64_t instruction_sets() noexcept;
/// For tests: has kernels use the best of these, or 0 for the best of all. Not while another thread runs one.
void use_instruction_sets(std::int64_t sets) noexcept;

}  // namespace torchtap::reductions::detail
