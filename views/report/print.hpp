#pragma once

/// Measurements as a table for a terminal.

#include <torch/arg.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report {

/// Chained like LibTorch's own options: `PrintOptions().width(120).depth(2)`.
class TORCHTAP_API PrintOptions {
 public:
  /// Characters in a line, 40 or more. Columns for which there is no room are named under the table.
  TORCH_ARG(std::size_t, width) = 80;
  /// Titles of the columns beside the module's, in order: "type", "input", "output", "params", "learnable",
  /// "MACs", "forward", "backward", "time", "memory", "calls", "own forward", "own backward", "mark". By
  /// default those for which there are numbers.
  TORCH_ARG(std::vector<std::string>, columns);
  /// Modules nested deeper are left out: 1 shows the root's children. By default all are shown, unless these
  /// are more than `max_rows`.
  TORCH_ARG(std::optional<std::int64_t>, depth);
  /// Above this number of modules the deepest are left out until they fit, and a line says so.
  TORCH_ARG(std::int64_t, max_rows) = 100;
  /// Whether the text has colours, which terminals show.
  TORCH_ARG(bool, colour) = false;
  /// Whether the tree and the bars are drawn in ASCII; otherwise in UTF-8.
  TORCH_ARG(bool, ascii) = false;
};

/// Prints the tree of modules with shapes, parameters, times, memory and work; below it the sums and the
/// findings. Throws `c10::ValueError` for a width below 40, a negative depth, or a column that there is not.
TORCHTAP_API void print(std::ostream& out, const Measurements& results, const PrintOptions& options = {});

/// Prints with the default options.
TORCHTAP_API std::ostream& operator<<(std::ostream& out, const Measurements& results);

}  // namespace torchtap::views::report
