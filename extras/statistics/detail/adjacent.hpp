#pragma once

/// Rows that were chosen, one behind the other in memory.

#include <vector>

#include <torchtap/reductions/extend/own_reduction.hpp>

namespace torchtap::statistics::detail {

/// The lines, one behind the other: those that are not are copied to `copies`, which has to live as long.
inline reductions::extend::Lines adjacent(reductions::extend::Lines lines, std::vector<char>& copies) {
  if (lines.places == nullptr) return lines;
  const std::int64_t bytes = lines.bytes();
  lines.each([&](const reductions::extend::Memory& row) {
    copies.insert(copies.end(), row.data, row.data + bytes);
  });
  lines.data = copies.data();
  lines.places = nullptr;
  return lines;
}

}  // namespace torchtap::statistics::detail
