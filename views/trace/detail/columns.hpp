#pragma once

// A graph as named columns of numbers and texts, which a saved history has beside its tensors.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/core/value.hpp>
#include <torchtap/views/trace/detail/graph.hpp>

namespace torchtap::views::trace::detail {

/// Lists of numbers, one after the other; list i ends at `ends[i]`.
struct Lists {
  std::vector<std::int64_t> values, ends;

  template <class Range>
  void add(const Range& range) {
    values.insert(values.end(), range.begin(), range.end());
    ends.push_back(static_cast<std::int64_t>(values.size()));
  }
  std::size_t size() const { return ends.size(); }
  std::vector<std::int64_t> operator[](std::size_t index) const {
    const auto begin = values.begin() + (index == 0 ? 0 : ends[index - 1]);
    return {begin, values.begin() + ends[index]};
  }
};

using Numbers = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

struct Columns {
  // One element for each node.
  Numbers kind, layer, pass, bytes, flags, result, results, nanoseconds;
  Texts type, function, name, dtype, device, source;
  Lists shape, parents, parameters, modules, output_of;
  // Arguments of all nodes; how many each node has.
  Numbers arguments;
  Texts argument_name, argument_text;
  Lists argument_nodes;
  // Parameters, and calls of modules, to which nodes refer.
  Texts parameter_path, parameter_dtype;
  Numbers parameter_elements, parameter_bytes, parameter_flags;
  Lists parameter_shape;
  Texts call_path, call_type;
  Numbers call_index;
  // Modules.
  Texts module_path, module_type;
  Numbers module_calls, module_nodes, module_parameters, module_bytes;
  // The pass.
  Texts about, unreached;  // model, error
  Numbers totals;          // nanoseconds, of operations, operations, dropped, copied
};

Columns to_columns(const Graph& graph);
/// Throws `c10::ValueError`, which begins with `where`, if the columns contradict each other.
Graph from_columns(const Columns& columns, const std::string& where);

core::Value to_value(const Columns& columns);
/// Throws `c10::ValueError`, which begins with `where`, if the value is something else.
Columns columns_of(const core::Value& value, const std::string& where);

}  // namespace torchtap::views::trace::detail
