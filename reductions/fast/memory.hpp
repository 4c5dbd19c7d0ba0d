#pragma once

/// Defines small samples, and rows of them, as the loops read them in the CPU's memory.

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace torchtap::reductions::detail {

/// A small contiguous sample in the CPU's memory, which loops read faster than operations of ATen.
struct Memory {
  c10::ScalarType type;
  const char* data;
  std::int64_t numel;
};

/// An extremum that loops find.
enum class Extreme { min, max, abs_max };

/// The rows of a small sample in memory.
struct Lines {
  c10::ScalarType type;
  const char* data;
  std::int64_t rows, numel;         ///< of each row
  const std::int64_t* places = {};  ///< where groups of rows lie; null: all are side by side
  std::int64_t together = 1;        ///< rows of a group, which are side by side

  /// The bytes of a row.
  std::int64_t bytes() const { return numel * static_cast<std::int64_t>(c10::elementSize(type)); }
  /// A row of so many bytes.
  Memory at(std::int64_t row, std::int64_t bytes) const {
    const std::int64_t place = places == nullptr ? row : places[row / together] * together + row % together;
    return {type, data + place * bytes, numel};
  }
  /// Calls `f(memory)` for each row.
  template <class F>
  void each(const F& f) const {
    const std::int64_t bytes = this->bytes();
    for (std::int64_t row = 0; row < rows; ++row) f(at(row, bytes));
  }
};

}  // namespace torchtap::reductions::detail
