#pragma once

/// Counts real numbers in the CPU's memory in bins, in plain loops or with the kernels if there are any.
/// Counters are laid out as `BinEdges` says.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <torchtap/reductions/extend/loops.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>

namespace torchtap::statistics::detail {

using reductions::Summary;
using reductions::extend::BinEdges;
using reductions::extend::Lines;
using reductions::extend::Memory;

/// Whether the tensor is real numbers in the CPU's memory, of a type that the functions below read.
bool is_countable(const at::Tensor& tensor);

/// Counts all elements with one set of counters.
void count_all(const Memory& x, const BinEdges& edges, std::int64_t* counters);

/// Counts each element of a row with its own counters: [elements of a row, edges.counters()].
void count_columns(const Lines& lines, const BinEdges& edges, std::int64_t* counters);

/// Counts elements that were summarised and are all equal: as many for each of `kept` rows of counters. For a
/// single row, infinities and NaN may be among them.
void count_equal(const Summary& all, std::int64_t kept, const BinEdges& edges, std::int64_t* counters);

}  // namespace torchtap::statistics::detail
