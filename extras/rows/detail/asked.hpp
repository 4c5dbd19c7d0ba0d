#pragma once

/// Defines `Asked`, what a recorder keeps of the tensors of calls: which rows, and what beside them.

#include <cstdint>
#include <string>
#include <vector>

namespace torchtap::rows::detail {

/// The options `rows`, `where` and `beside`.
struct Asked {
  std::vector<std::int64_t> dimensions;
  std::string mask;  // "" if all rows are kept
  std::vector<std::string> beside;
};

/// The number of the format in extras/rows/FORMAT.md, which is the type of entries that say which calls rows
/// are of.
inline constexpr const char* kFormat = "rows 1";
/// The numbers of such a line: run, forward, group, call, rows.
inline constexpr std::int64_t kNumbers = 5;

}  // namespace torchtap::rows::detail
