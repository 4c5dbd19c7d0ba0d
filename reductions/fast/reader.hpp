#pragma once

/// Reads a contiguous sample with the kernels, in pieces and on several threads.

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <vector>

#include <torchtap/reductions/fast/bin_edges.hpp>
#include <torchtap/reductions/fast/bits.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions::detail {

/// A contiguous sample viewed as [folded, kept, folded, kept]; missing dimensions have size 1.
struct Layout {
  std::int64_t outer = 1, kept = 1, inner = 1, columns = 1;

  bool operator==(const Layout& other) const noexcept {
    return outer == other.outer && kept == other.kept && inner == other.inner && columns == other.columns;
  }
};

/// A request for one way of folding a sample, and its answer once `done`.
struct Read {
  /// [kept, bins + 3]: bins, below, above, NaN.
  struct Counting {
    Edges edges;
    std::vector<std::int64_t> slots;
  };

  /// Counts by the bits of the elements. A slot may come more than once.
  struct BitCounting {
    BitBins bins;
    std::vector<SlotCounts> kept;
  };

  Layout layout;
  Needs needs;
  bool summarize = false;
  std::vector<Counting> countings;
  std::vector<BitCounting> bit_countings;
  std::vector<Summary> kept;
  bool done = false;
};

/// Whether the kernels count bins in this layout: one histogram per kept element, with long runs.
bool has_bins(const Layout& layout) noexcept;

/// Whether numbers are counted by their bits in this layout, in the same pass.
bool has_bit_counts(const Layout& layout) noexcept;

/// Rows of a sample that do not lie side by side: `rows[i]` is where row i lies.
struct Scattered {
  const char* data = nullptr;  ///< of the tensor that they were chosen of; null for none
  c10::ArrayRef<std::int64_t> rows;
  std::int64_t bytes = 0;  ///< of one

  const char* at(std::int64_t row) const noexcept {
    return data + rows[static_cast<std::size_t>(row)] * bytes;
  }
};

/// Elements to read: side by side, or in scattered rows.
struct Elements {
  c10::ScalarType type;
  const char* data;
  std::int64_t numel;
  Scattered scattered;
};

/// Whether scattered rows are read where they lie: each has whole runs of all kept elements, or all rows are
/// one run, which is copied piece by piece.
bool reads_scattered(const Layout& layout, std::int64_t rows) noexcept;

/// Fills in the answer. The pieces depend only on the shape and are combined in order, so the number of
/// threads does not change the result, nor where rows lie.
void read(const Elements& elements, Read& read);

/// Calls `f(begin, end)` for parts of [0, units) on LibTorch's threads, or on the current thread if
/// `elements` is small.
void parallel(std::int64_t units, std::int64_t elements,
              const std::function<void(std::int64_t, std::int64_t)>& f);

}  // namespace torchtap::reductions::detail
