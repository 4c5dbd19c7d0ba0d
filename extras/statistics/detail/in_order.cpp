// Reads strided samples in the order of their dimensions, and transposes tiles of them in a small buffer.

#include <ATen/Functions.h>

#include <algorithm>
#include <optional>
#include <vector>

#include <torchtap/base/of_thread.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/extend/loops.hpp>
#include <torchtap/statistics/detail/in_order.hpp>

namespace torchtap::statistics::detail {
namespace {

using reductions::extend::cpu_kernels;
using reductions::extend::kSmall;
using reductions::extend::parallel;

/// Matrices stored by columns: the elements of a column, one of each row, are neighbours in memory.
struct Matrices {
  std::int64_t count = 1, apart = 0;               // from one to the next, in elements
  std::int64_t rows = 1, columns = 1, stride = 1;  // from one column to the next
};

std::optional<Matrices> matrices_of(const at::Tensor& sample) {
  // Dimensions whose elements are as far apart as if they were one are one.
  struct Dimension {
    std::int64_t size, stride;
  };
  c10::SmallVector<Dimension, 4> inner_first;
  for (std::int64_t i = sample.dim(); i-- > 0;) {
    const Dimension next{sample.size(i), sample.stride(i)};
    if (next.size == 1) continue;
    if (!inner_first.empty() && next.stride == inner_first.back().size * inner_first.back().stride) {
      inner_first.back().size *= next.size;
    } else {
      inner_first.push_back(next);
    }
  }
  if (inner_first.size() < 2 || inner_first.size() > 3 || inner_first[1].stride != 1) return std::nullopt;
  Matrices matrices;
  matrices.columns = inner_first[0].size;
  matrices.stride = inner_first[0].stride;
  matrices.rows = inner_first[1].size;
  if (inner_first.size() == 3) {
    matrices.count = inner_first[2].size;
    matrices.apart = inner_first[2].stride;
  }
  return matrices;
}

/// Rows and columns that are turned around at a time.
struct Tile {
  std::int64_t rows, columns;
};

Tile tile_of(const Matrices& matrices) {
  constexpr std::int64_t kRows = 16;  // of float32, a cache line
  // Long enough for runs of the results, and no power of two, which would put all rows of the buffer into a
  // few sets of the cache.
  constexpr std::int64_t kColumns = 496;
  constexpr std::int64_t kElements = kRows * kColumns;
  const std::int64_t columns = std::min(matrices.columns, kColumns);
  return {std::min(matrices.rows, std::max(kRows, kElements / columns / kRows * kRows)), columns};
}

}  // namespace

void each_in_order(const at::Tensor& sample, c10::function_ref<void(const Memory&, std::int64_t)> f) {
  const auto type = sample.scalar_type();
  const auto item = static_cast<std::int64_t>(sample.element_size());
  const auto* const loops = cpu_kernels();
  const auto turn = loops == nullptr ? nullptr : loops->transpose;
  const bool turns = !sample.is_contiguous() && turn != nullptr && item <= 8;
  const auto matrices = turns ? matrices_of(sample) : std::nullopt;
  if (!matrices) {
    const base::RecordingMode quiet;
    const at::Tensor ordered = sample.detach().contiguous();
    const auto* const x = static_cast<const char*>(ordered.data_ptr());
    const std::int64_t numel = ordered.numel();
    parallel((numel + kSmall - 1) / kSmall, numel, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t from = begin * kSmall;
      f({type, x + from * item, std::min(numel, end * kSmall) - from}, from);
    });
    return;
  }
  const Tile tile = tile_of(*matrices);
  const std::int64_t down = (matrices->rows + tile.rows - 1) / tile.rows;
  const std::int64_t across = (matrices->columns + tile.columns - 1) / tile.columns;
  const auto* const x = static_cast<const char*>(sample.data_ptr());
  parallel(matrices->count * down * across, sample.numel(), [&](std::int64_t begin, std::int64_t end) {
    struct Turned;
    auto& buffer = base::of_thread<std::vector<char>, Turned>();
    buffer.resize(static_cast<std::size_t>(tile.rows * tile.columns * item));
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t matrix = unit / (down * across);
      const std::int64_t row = unit / across % down * tile.rows, column = unit % across * tile.columns;
      const std::int64_t rows = std::min(tile.rows, matrices->rows - row);
      const std::int64_t columns = std::min(tile.columns, matrices->columns - column);
      const std::int64_t first = matrix * matrices->apart + column * matrices->stride + row;
      turn(static_cast<std::size_t>(item), x + first * item, static_cast<std::size_t>(columns),
           static_cast<std::size_t>(rows), static_cast<std::size_t>(matrices->stride), buffer.data());
      const std::int64_t from = (matrix * matrices->rows + row) * matrices->columns + column;
      // Whole rows are one piece.
      const std::int64_t pieces = across == 1 ? 1 : rows, size = rows * columns / pieces;
      for (std::int64_t i = 0; i < pieces; ++i)
        f({type, buffer.data() + i * size * item, size}, from + i * matrices->columns);
    }
  });
}

}  // namespace torchtap::statistics::detail
