#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "recordings.hpp"

/// Rows of dumps (`RecorderOptions::rows`) and what is beside them.
namespace torchtap::tools {

/// "0:5" as begin and end; negative numbers count from the end, and none is the first or the last row.
struct RowRange {
  std::int64_t begin = 0, end = 0;
};
/// Throws `c10::ValueError` for another text, `c10::IndexError` for rows that are not there.
RowRange row_range(const std::string& text, std::int64_t size);

/// Prints rows of a module to stdout, with what is beside them if `beside`.
void print_rows(const Layer& layer, const std::string& range, bool beside, bool as_json);
/// Prints a line about what is beside the rows of a dump, if it is one.
void print_beside(const Layers& layers);

/// Calls `visit` with each column of the table of what is beside the rows: run, forward, call, place, and
/// each name. It is one table if all of `layers` have the same rows; else there is one of each, and `layer`
/// is its module.
void each_beside(
    const std::vector<const Layer*>& layers,
    const std::function<void(const Layer* layer, const std::string& name, const at::Tensor&)>& visit);

}  // namespace torchtap::tools
