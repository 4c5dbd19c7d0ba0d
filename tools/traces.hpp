#pragma once

#include <string>

#include "comparison.hpp"
#include "manifest.hpp"
#include "recordings.hpp"

/// Saved traces (`torchtap trace --save`, `trace::History::save`).
namespace torchtap::tools {

/// Whether a recording is a trace: whether its last entry is the graph of one.
bool is_trace(const Layers& layers);

struct TraceDiff {
  std::string a, b;  ///< directories
  Tolerance tolerance;
  Format format = Format::table;
};

/// Compares two traces operation by operation and prints the result. Returns whether all agree.
///
/// What both programs ran before and after the place where they differ is paired by order; between,
/// operations are paired if there are as many on either side.
bool diff_traces(const TraceDiff& how);

}  // namespace torchtap::tools
