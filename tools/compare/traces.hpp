#pragma once

#include "comparison_table.hpp"
#include "recordings/recordings.hpp"

/// Saved traces (`torchtap trace --save`, `trace::History::save`).
namespace torchtap::tools {

/// Whether a recording is a trace: whether its last entry is the graph of one.
bool is_trace(const Layers& layers);

/// Compares two traces operation by operation and prints the result. Returns the exit status.
///
/// Operations that both programs ran before and after the place where they differ are paired by order; those
/// between are paired if there are as many on either side.
int compare_traces(const CompareOptions& options);

}  // namespace torchtap::tools
