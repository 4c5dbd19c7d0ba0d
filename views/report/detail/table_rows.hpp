#pragma once

// The rows of a table of modules.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

/// A module, and where it stands in the tree.
struct Line {
  const ModuleRow* module = nullptr;
  /// The lines of the tree before its name: "│  ├─ ".
  std::string lines;
  /// How many modules below it are left out.
  std::int64_t left_out = 0;
};

/// All modules, in the order of the tree, down to `depth`.
std::vector<Line> lines_of(const ModuleRow& root, std::int64_t depth, bool ascii);
/// The depth to which at most `most` modules are shown, but at least 1; `kWholeTree` if these are all.
std::int64_t depth_for(const ModuleRow& root, std::int64_t most);
constexpr std::int64_t kWholeTree = std::numeric_limits<std::int64_t>::max();

/// Calls `visit` for each module, in the order of the tree.
template <class Visit>
void each_module(const ModuleRow& row, const Visit& visit) {
  visit(row);
  for (const ModuleRow& child : row.children) each_module(child, visit);
}

/// Whether these times of a module are known: it was called, or they are sums.
inline bool has_times(const ModuleRow& row, const Times& times) {
  return times.calls > 0 || (row.summed && times.total > 0);
}
/// Seconds that a module took in forward and backward, those inside included. If its own forward did not run,
/// the calls of the modules inside.
double seconds_of(const ModuleRow& row);
/// The most memory that a module held in either direction.
std::int64_t peak_of(const ModuleRow& row);

}  // namespace torchtap::views::report::detail
