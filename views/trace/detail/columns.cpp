// Between a graph and its columns.
#include <ATen/Functions.h>

#include <algorithm>
#include <map>

#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/storage/dtype.hpp>
#include <torchtap/views/trace/detail/columns.hpp>

namespace torchtap::views::trace::detail {
namespace {

constexpr const char* format_key = "format";
constexpr std::int64_t format = 1;

using Call = std::pair<ModuleCall, std::int64_t>;

/// Gives the columns of a graph.
class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph) {}

  Columns run() {
    for (const NodeData& node : graph_.nodes) add(node);
    for (const ModuleSummary& module : graph_.modules) {
      to_.module_path.push_back(module.path);
      to_.module_type.push_back(module.type);
      to_.module_calls.push_back(module.calls);
      to_.module_nodes.push_back(module.nodes);
      to_.module_parameters.push_back(module.parameters);
      to_.module_bytes.push_back(module.parameter_bytes);
    }
    to_.about = {graph_.model, graph_.error};
    to_.unreached = graph_.unreached;
    to_.totals = {graph_.nanoseconds, graph_.operation_nanoseconds, graph_.operations, graph_.dropped,
                  graph_.copied};
    return std::move(to_);
  }

 private:
  void add(const NodeData& node) {
    to_.kind.push_back(static_cast<std::int64_t>(node.kind));
    to_.layer.push_back(node.layer);
    to_.pass.push_back(node.pass);
    to_.bytes.push_back(node.bytes);
    to_.flags.push_back(node.in_place | node.view << 1 | node.random << 2 | node.created_inside << 3 |
                        node.read_by_program << 4 | node.requires_grad << 5 | node.saved << 6);
    to_.result.push_back(node.result);
    to_.results.push_back(node.results);
    to_.nanoseconds.push_back(node.nanoseconds);
    to_.type.push_back(node.type);
    to_.function.push_back(node.function);
    to_.name.push_back(node.name);
    to_.dtype.push_back(storage::dtype_name(node.dtype));
    to_.device.push_back(node.device.str());
    to_.source.push_back(node.frames.empty() ? node.script_source : text_of(node.frames));
    to_.shape.add(node.shape);
    to_.parents.add(node.parents);
    Numbers parameters, modules, output_of;
    for (const ParameterUse& use : node.parameters) parameters.push_back(place_of(use));
    for (const ModuleCall& call : node.modules) modules.push_back(place_of(call));
    for (const ModuleCall& call : node.output_of) output_of.push_back(place_of(call));
    to_.parameters.add(parameters);
    to_.modules.add(modules);
    to_.output_of.add(output_of);
    to_.arguments.push_back(static_cast<std::int64_t>(node.arguments.size()));
    for (const Argument& argument : node.arguments) {
      to_.argument_name.push_back(argument.name);
      to_.argument_text.push_back(argument.text);
      to_.argument_nodes.add(argument.nodes);
    }
  }

  std::int64_t place_of(const ParameterUse& use) {
    const auto [known, added] = parameters_.emplace(use.path, static_cast<std::int64_t>(parameters_.size()));
    if (added) {
      to_.parameter_path.push_back(use.path);
      to_.parameter_dtype.push_back(storage::dtype_name(use.dtype));
      to_.parameter_elements.push_back(use.elements);
      to_.parameter_bytes.push_back(use.bytes);
      to_.parameter_flags.push_back(use.buffer | use.trainable << 1);
      to_.parameter_shape.add(use.shape);
    }
    return known->second;
  }

  std::int64_t place_of(const ModuleCall& call) {
    const auto [known, added] =
        calls_.emplace(std::make_pair(call.path, call.call), static_cast<std::int64_t>(calls_.size()));
    if (added) {
      to_.call_path.push_back(call.path);
      to_.call_type.push_back(call.type);
      to_.call_index.push_back(call.call);
    }
    return known->second;
  }

  const Graph& graph_;
  Columns to_;
  std::map<std::string, std::int64_t> parameters_;
  std::map<std::pair<std::string, std::int64_t>, std::int64_t> calls_;
};

/// Makes a graph of columns, which come from a file and may claim anything.
class Reader {
 public:
  Reader(const Columns& from, const std::string& where) : from_(from), where_(where) {}

  Graph run() {
    check(from_.totals.size() == 5 && from_.about.size() == 2, "has no totals");
    same(from_.kind.size(),
         {from_.layer.size(), from_.pass.size(), from_.bytes.size(), from_.flags.size(), from_.result.size(),
          from_.results.size(), from_.nanoseconds.size(), from_.type.size(), from_.function.size(),
          from_.name.size(), from_.dtype.size(), from_.device.size(), from_.source.size(), from_.shape.size(),
          from_.parents.size(), from_.parameters.size(), from_.modules.size(), from_.output_of.size(),
          from_.arguments.size()});
    same(from_.argument_name.size(), {from_.argument_text.size(), from_.argument_nodes.size()});
    same(from_.parameter_path.size(),
         {from_.parameter_dtype.size(), from_.parameter_elements.size(), from_.parameter_bytes.size(),
          from_.parameter_flags.size(), from_.parameter_shape.size()});
    same(from_.call_path.size(), {from_.call_type.size(), from_.call_index.size()});
    same(from_.module_path.size(),
         {from_.module_type.size(), from_.module_calls.size(), from_.module_nodes.size(),
          from_.module_parameters.size(), from_.module_bytes.size()});
    for (const Lists* lists : {&from_.shape, &from_.parents, &from_.parameters, &from_.modules,
                               &from_.output_of, &from_.argument_nodes, &from_.parameter_shape}) {
      check(std::is_sorted(lists->ends.begin(), lists->ends.end()) &&
                (lists->ends.empty() ||
                 (lists->ends.front() >= 0 &&
                  lists->ends.back() == static_cast<std::int64_t>(lists->values.size()))),
            "has lists that do not fit together");
    }
    for (std::size_t i = 0; i < from_.kind.size(); ++i) add(i);
    check_layers();
    for (std::size_t i = 0; i < from_.module_path.size(); ++i) {
      to_.modules.push_back({from_.module_path[i], from_.module_type[i], from_.module_calls[i],
                             from_.module_nodes[i], from_.module_parameters[i], from_.module_bytes[i]});
    }
    for (std::size_t i = 0; i < from_.parameter_path.size(); ++i) to_.parameters.push_back(parameter(i));
    to_.model = from_.about[0];
    to_.error = from_.about[1];
    to_.unreached = from_.unreached;
    to_.nanoseconds = from_.totals[0];
    to_.operation_nanoseconds = from_.totals[1];
    to_.operations = from_.totals[2];
    to_.dropped = from_.totals[3];
    to_.copied = from_.totals[4];
    return std::move(to_);
  }

 private:
  void check(bool holds, const char* claim) const {
    TORCH_CHECK_VALUE(holds, where_, "the graph of the pass ", claim,
                      "; the file is damaged or was not written by "
                      "views::trace::History::save.");
  }
  void same(std::size_t size, std::initializer_list<std::size_t> others) const {
    check(std::all_of(others.begin(), others.end(), [&](std::size_t other) { return other == size; }),
          "has columns of different lengths");
  }
  std::size_t index(std::int64_t claimed, std::size_t size) const {
    check(claimed >= 0 && static_cast<std::size_t>(claimed) < size, "refers to something that is not there");
    return static_cast<std::size_t>(claimed);
  }
  at::ScalarType dtype(const std::string& name) const {
    return storage::dtype_of(name).value_or(at::kFloat);  // a newer LibTorch's, perhaps
  }

  ParameterUse parameter(std::size_t i) const {
    ParameterUse use;
    use.path = from_.parameter_path[i];
    use.shape = from_.parameter_shape[i];
    use.dtype = dtype(from_.parameter_dtype[i]);
    use.elements = from_.parameter_elements[i];
    use.bytes = from_.parameter_bytes[i];
    use.buffer = (from_.parameter_flags[i] & 1) != 0;
    use.trainable = (from_.parameter_flags[i] & 2) != 0;
    return use;
  }
  ModuleCall call(std::int64_t claimed) const {
    const std::size_t i = index(claimed, from_.call_path.size());
    return {from_.call_path[i], from_.call_type[i], from_.call_index[i]};
  }

  void add(std::size_t i) {
    NodeData& node = to_.nodes.emplace_back();
    const auto flag = [&](int bit) { return (from_.flags[i] >> bit & 1) != 0; };
    node.kind = static_cast<NodeKind>(index(from_.kind[i], 4));
    node.layer = from_.layer[i];
    node.pass = from_.pass[i];
    node.bytes = from_.bytes[i];
    node.result = from_.result[i];
    node.results = from_.results[i];
    node.nanoseconds = from_.nanoseconds[i];
    node.type = from_.type[i];
    node.function = from_.function[i];
    node.name = from_.name[i];
    node.dtype = dtype(from_.dtype[i]);
    try {
      node.device = c10::Device(from_.device[i]);
    } catch (const c10::Error&) {  // of a newer LibTorch
    }
    node.script_source = from_.source[i];
    node.in_place = flag(0);
    node.view = flag(1);
    node.random = flag(2);
    node.created_inside = flag(3);
    node.read_by_program = flag(4);
    node.requires_grad = flag(5);
    node.saved = flag(6);
    node.shape = from_.shape[i];
    for (const std::int64_t parent : from_.parents[i]) {
      node.parents.push_back(static_cast<std::int64_t>(index(parent, i)));  // before it
    }
    for (const std::int64_t use : from_.parameters[i]) {
      node.parameters.push_back(parameter(index(use, from_.parameter_path.size())));
    }
    for (const std::int64_t one : from_.modules[i]) node.modules.push_back(call(one));
    for (const std::int64_t one : from_.output_of[i]) node.output_of.push_back(call(one));
    for (std::int64_t n = 0; n < from_.arguments[i]; ++n, ++argument_) {
      check(argument_ < from_.argument_name.size(), "has too few arguments");
      Argument& argument = node.arguments.emplace_back();
      argument.name = from_.argument_name[argument_];
      argument.text = from_.argument_text[argument_];
      argument.nodes = from_.argument_nodes[argument_];
      for (const std::int64_t one : argument.nodes) {
        if (one != -1) index(one, from_.kind.size());
      }
    }
  }

  /// Layers are numbered by their first passes, and passes from 1.
  void check_layers() const {
    std::vector<std::int64_t> passes;
    for (const NodeData& node : to_.nodes) {
      const auto next = static_cast<std::int64_t>(passes.size());
      check(node.layer >= 0 && node.layer <= next, "has layers that do not follow each other");
      if (node.layer == next) passes.push_back(0);
      check(node.pass == ++passes[node.layer], "has passes that do not follow each other");
    }
  }

  const Columns& from_;
  const std::string& where_;
  std::size_t argument_ = 0;
  Graph to_;
};

/// Applies `column(name, member)` to all columns, for writing and for reading.
template <class Columns, class Function>
void for_each_column(Columns& columns, Function&& column) {
  column("kind", columns.kind);
  column("layer", columns.layer);
  column("pass", columns.pass);
  column("bytes", columns.bytes);
  column("flags", columns.flags);
  column("result", columns.result);
  column("results", columns.results);
  column("nanoseconds", columns.nanoseconds);
  column("type", columns.type);
  column("function", columns.function);
  column("name", columns.name);
  column("dtype", columns.dtype);
  column("device", columns.device);
  column("source", columns.source);
  column("shape", columns.shape);
  column("parents", columns.parents);
  column("parameters", columns.parameters);
  column("modules", columns.modules);
  column("output_of", columns.output_of);
  column("arguments", columns.arguments);
  column("argument_name", columns.argument_name);
  column("argument_text", columns.argument_text);
  column("argument_nodes", columns.argument_nodes);
  column("parameter_path", columns.parameter_path);
  column("parameter_dtype", columns.parameter_dtype);
  column("parameter_elements", columns.parameter_elements);
  column("parameter_bytes", columns.parameter_bytes);
  column("parameter_flags", columns.parameter_flags);
  column("parameter_shape", columns.parameter_shape);
  column("call_path", columns.call_path);
  column("call_type", columns.call_type);
  column("call_index", columns.call_index);
  column("module_path", columns.module_path);
  column("module_type", columns.module_type);
  column("module_calls", columns.module_calls);
  column("module_nodes", columns.module_nodes);
  column("module_parameters", columns.module_parameters);
  column("module_bytes", columns.module_bytes);
  column("about", columns.about);
  column("unreached", columns.unreached);
  column("totals", columns.totals);
}

core::Value value_of(const Numbers& numbers) {
  const at::Tensor tensor = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), tensor.data_ptr<std::int64_t>());
  return tensor;
}
core::Value value_of(const Texts& texts) {
  core::Value::List list;
  for (const std::string& text : texts) list.emplace_back(text);
  return list;
}
core::Value value_of(const Lists& lists) {
  return core::Value::List{value_of(lists.values), value_of(lists.ends)};
}

void read(const core::Value& value, Numbers& numbers) {
  const at::Tensor& tensor = value.tensor();
  TORCH_CHECK_VALUE(tensor.dim() == 1 && tensor.scalar_type() == at::kLong, "not a list of int64");
  const at::Tensor plain = tensor.contiguous();
  const std::int64_t* first = plain.data_ptr<std::int64_t>();
  numbers.assign(first, first + plain.numel());
}
void read(const core::Value& value, Texts& texts) {
  for (const core::Value& one : value.list()) texts.push_back(one.text());
}
void read(const core::Value& value, Lists& lists) {
  read(value.at(0), lists.values);
  read(value.at(1), lists.ends);
}

}  // namespace

Columns to_columns(const Graph& graph) {
  return Writer(graph).run();
}

Graph from_columns(const Columns& columns, const std::string& where) {
  return Reader(columns, where).run();
}

core::Value to_value(const Columns& columns) {
  core::Value::Dict dict{{format_key, value_of(Numbers{format})}};
  for_each_column(columns,
                  [&](const char* name, const auto& column) { dict.emplace_back(name, value_of(column)); });
  return dict;
}

Columns columns_of(const core::Value& value, const std::string& where) {
  Columns columns;
  std::string unreadable;
  try {
    // Before everything else: columns of a newer format may have other names.
    Numbers number;
    read(value.at(std::string(format_key)), number);
    unreadable = base::unreadable_format(number.at(0), format);
    if (unreadable.empty())
      for_each_column(columns,
                      [&](const char* name, auto& column) { read(value.at(std::string(name)), column); });
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK_VALUE(false, where, "the graph of the pass cannot be read: ",
                      ours != nullptr ? ours->what_without_backtrace() : error.what());
  }
  TORCH_CHECK_VALUE(unreadable.empty(), where, "the graph of the pass cannot be read: ", unreadable, ".");
  return columns;
}

}  // namespace torchtap::views::trace::detail
