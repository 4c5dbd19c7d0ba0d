// Makes the graph of a log.
#include <algorithm>
#include <set>
#include <unordered_map>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/dtype.hpp>
#include <torchtap/views/trace/detail/graph.hpp>
#include <torchtap/views/trace/detail/layers.hpp>

namespace torchtap::views::trace::detail {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// A tensor argument of a step, with its name there.
struct StepRead {
  std::string argument;
  std::vector<Read> reads;
};

class Builder {
 public:
  explicit Builder(const std::shared_ptr<Log>& log) : log_(*log), graph_(std::make_shared<Graph>()) {
    graph_->log = log;
    node_of_value_.assign(log_.values.size(), -1);
    graph_->node_of_operation.assign(log_.operations.size(), -1);
  }

  std::shared_ptr<Graph> build() {
    for (const Port& port : log_.inputs) {
      if (node_of_value_[at(port.value)] >= 0) continue;  // the same tensor twice
      add(NodeKind::input, "input", port.value).name = port.name;
    }
    const auto steps = steps_of(log_);
    for (const Step& step : steps) add_step(step);
    for (const Port& port : log_.outputs) {
      std::vector<std::int64_t> parents;
      for (const std::int64_t source : sources_of(port)) add_parent(parents, node_of(source));
      NodeData& output = add(NodeKind::output, "output", port.value, /*names_value=*/false);
      output.name = port.name;
      output.parents = std::move(parents);
    }
    add_modules();
    find_layers();
    connect(*graph_);
    for (std::size_t i = 0; i < step_of_node_.size(); ++i) {
      if (step_of_node_[i] != nullptr) describe_arguments(graph_->nodes[i], *step_of_node_[i]);
    }
    graph_->model = log_.model;
    graph_->error = log_.error;
    graph_->nanoseconds = log_.nanoseconds;
    graph_->dropped = log_.dropped;
    graph_->copied = log_.copied;
    select();
    return graph_;
  }

 private:
  /// A node of the value; the value is then known by it.
  NodeData& add(NodeKind kind, const std::string& type, std::int64_t value, bool names_value = true) {
    if (names_value) node_of_value_[at(value)] = static_cast<std::int64_t>(graph_->nodes.size());
    const Value& described = log_.values[at(value)];
    NodeData& node = graph_->nodes.emplace_back();
    step_of_node_.push_back(nullptr);
    node.kind = kind;
    node.type = type;
    node.value = value;
    node.shape.assign(described.sizes.begin(), described.sizes.end());
    node.dtype = described.dtype;
    node.device = described.device;
    node.bytes = described.bytes;
    node.requires_grad = described.requires_grad;
    return node;
  }

  /// The node that a value belongs to; one for a tensor from outside is made. -1 for parameters.
  std::int64_t node_of(std::int64_t number) {
    if (number < 0) return -1;
    if (node_of_value_[at(number)] >= 0) return node_of_value_[at(number)];
    const Value& value = log_.values[at(number)];
    std::int64_t node = -1;
    if (value.producer >= 0) node = graph_->node_of_operation[at(value.producer)];
    if (node < 0 && may_be_view(value)) node = node_of(value.of);
    if (node < 0 && value.origin == Origin::outside && parameter_of(number) < 0 && constant_of(number) < 0) {
      add(NodeKind::outside, "outside", number);
      return node_of_value_[at(number)];
    }
    node_of_value_[at(number)] = node;
    return node;
  }

  /// The values of the bytes that an operation read or that left the pass.
  template <class Use>
  Mixture sources_of(const Use& use) const {
    if (use.value < 0) return {};
    return use.mixture < 0 ? Mixture{use.value} : log_.mixtures[at(use.mixture)];
  }

  static void add_parent(std::vector<std::int64_t>& parents, std::int64_t node) {
    if (node >= 0 && std::find(parents.begin(), parents.end(), node) == parents.end()) {
      parents.push_back(node);
    }
  }

  /// The parameter, buffer or constant that a value is, or is a view of; -1 for others.
  std::int64_t held_as(Origin origin, std::int64_t number) const {
    while (number >= 0) {
      const Value& value = log_.values[at(number)];
      if (value.origin == origin) return value.of;
      if (value.returned || !may_be_view(value)) return -1;
      number = value.of;
    }
    return -1;
  }
  std::int64_t parameter_of(std::int64_t number) const { return held_as(Origin::parameter, number); }
  std::int64_t constant_of(std::int64_t number) const { return held_as(Origin::constant, number); }

  /// Whether `Value::of` is another value.
  static bool may_be_view(const Value& value) {
    return value.of >= 0 && (value.origin == Origin::operation || value.origin == Origin::outside);
  }

  /// The tensor arguments of a step, in order.
  std::vector<StepRead> reads_of(const Step& step) const {
    std::vector<StepRead> reads;
    const auto take = [&](std::size_t operation, std::uint16_t argument, const char* name) {
      StepRead read{name, {}};
      for (const Read& one : log_.operations[operation].reads) {
        if (one.argument == argument) read.reads.push_back(one);
      }
      reads.push_back(std::move(read));
    };
    if (step.linear) {
      const bool addmm = log_.operations[step.operations[1]].facts->full == "aten::addmm";
      take(step.operations[1], addmm ? 1 : 0, "input");
      take(step.operations[0], 0, "weight");
      if (addmm) take(step.operations[1], 0, "bias");
      if (step.operations.size() == 3) take(step.operations[2], 1, "bias");
      return reads;
    }
    const Operation& operation = log_.operations[step.operations[0]];
    for (const Read& read : operation.reads) {
      const std::string& name = operation.handle.schema().arguments()[read.argument].name();
      if (reads.empty() || reads.back().argument != name) reads.push_back({name, {}});
      reads.back().reads.push_back(read);
    }
    return reads;
  }

  void add_step(const Step& step) {
    const Operation& last = log_.operations[step.operations.back()];
    std::vector<std::int64_t> parents;
    std::vector<ParameterUse> parameters;
    bool reads_any = false;
    for (const StepRead& argument : reads_of(step)) {
      for (const Read& read : argument.reads) {
        for (const std::int64_t source : sources_of(read)) {
          reads_any = reads_any || constant_of(source) < 0;
          add_parent(parents, node_of(source));
          const std::int64_t used = parameter_of(source);
          if (used < 0) continue;
          const ParameterUse& use = log_.parameters[at(used)];
          const auto same = [&](const ParameterUse& other) { return other.path == use.path; };
          if (std::none_of(parameters.begin(), parameters.end(), same)) parameters.push_back(use);
        }
      }
    }
    if (last.facts->reads_value) {
      for (const std::int64_t parent : parents) graph_->nodes[at(parent)].read_by_program = true;
    }
    std::int64_t nanoseconds = 0;
    for (const std::size_t i : step.operations) nanoseconds += log_.operations[i].nanoseconds;
    graph_->operation_nanoseconds += nanoseconds;

    // An operation that returns nothing has what it wrote to as its results.
    const bool returns = !last.results.empty();
    std::vector<std::int64_t> values(last.results.begin(), last.results.end());
    if (!returns) values.assign(last.written.begin(), last.written.end());
    if (values.empty()) return;
    ++graph_->operations;
    const auto first = static_cast<std::int64_t>(graph_->nodes.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      NodeData& node = add(NodeKind::operation, step.linear ? "linear" : last.facts->type, values[i]);
      step_of_node_.back() = &step;
      node.function = step.linear ? "aten::linear" : last.facts->full;
      node.parents = parents;
      node.parameters = parameters;
      node.modules = modules_of(last.context);
      node.in_place = !step.linear && (last.in_place || !returns);
      node.view = !step.linear && last.view;
      node.random = last.facts->random || last.generator.defined();
      node.created_inside = !reads_any;
      node.result = static_cast<std::int64_t>(i);
      node.results = static_cast<std::int64_t>(values.size());
      node.nanoseconds = nanoseconds;
      if (last.script_source != nullptr) node.script_source = *last.script_source;
      node.frames = last.frames;
    }
    for (const std::size_t i : step.operations) {
      graph_->node_of_operation[i] = first;
      for (const std::int64_t value : log_.operations[i].results) {
        if (node_of_value_[at(value)] < 0) node_of_value_[at(value)] = first;
      }
    }
  }

  std::vector<ModuleCall> modules_of(std::int64_t context) const {
    std::vector<ModuleCall> calls;
    for (; context >= 0; context = log_.contexts[at(context)].parent) {
      const Context& entered = log_.contexts[at(context)];
      const LoggedModule& module = log_.modules[at(entered.module)];
      if (!module.path.empty()) calls.push_back({module.path, module.type, entered.call});
    }
    std::reverse(calls.begin(), calls.end());
    return calls;
  }

  void add_modules() {
    for (const Returned& one : log_.returned) {
      const LoggedModule& module = log_.modules[at(one.module)];
      const bool outside = log_.values[at(one.value)].origin == Origin::outside;
      const std::int64_t node = outside ? node_of_value_[at(one.value)] : node_of(one.value);
      if (module.path.empty() || node < 0) continue;
      auto& calls = graph_->nodes[at(node)].output_of;
      const ModuleCall call{module.path, module.type, one.call};
      if (std::find(calls.begin(), calls.end(), call) == calls.end()) calls.push_back(call);
    }
    std::vector<std::int64_t> calls(log_.modules.size(), 0);
    for (const Context& context : log_.contexts) ++calls[at(context.module)];
    std::map<std::string, std::int64_t> nodes;
    for (const NodeData& node : graph_->nodes) {
      if (node.kind != NodeKind::operation) continue;
      ++nodes[""];
      for (const ModuleCall& call : node.modules) ++nodes[call.path];
    }
    for (std::size_t i = 0; i < log_.modules.size(); ++i) {
      const LoggedModule& module = log_.modules[i];
      if (!module.reached) graph_->unreached.push_back(module.path);
      if (calls[i] == 0) continue;
      ModuleSummary summary{module.path, module.type, calls[i], nodes[module.path], 0, 0};
      for (const std::int64_t parameter : module.parameters) {
        if (log_.parameters[at(parameter)].buffer) continue;
        summary.parameters += log_.parameters[at(parameter)].elements;
        summary.parameter_bytes += log_.parameters[at(parameter)].bytes;
      }
      graph_->modules.push_back(std::move(summary));
    }
    std::set<std::string> seen;
    for (const NodeData& node : graph_->nodes) {
      for (const ParameterUse& use : node.parameters) {
        if (seen.insert(use.path).second) graph_->parameters.push_back(use);
      }
    }
  }

  /// The facts of an operation that the rules about layers compare, without tensors.
  std::string key_of(const NodeData& node, const Step& step) const {
    std::string key = node.function + "#" + std::to_string(node.result);
    if (!node.modules.empty()) key += "@" + node.modules.back().path;
    if (node.type == "select") return key;  // x[t] of a loop: which element it is does not matter
    for (const std::size_t i : step.operations) {
      for (const c10::IValue& argument : log_.operations[i].arguments) key += "," + text_of(argument);
    }
    for (const StepRead& argument : reads_of(step)) {  // x + 1 is not x + 2
      for (const Read& read : argument.reads) {
        const std::int64_t constant = read.value < 0 ? -1 : constant_of(read.value);
        if (constant >= 0) key += "," + log_.constants[at(constant)];
      }
    }
    return key;
  }

  void find_layers() {
    std::unordered_map<std::string, std::int64_t> functions, parameters;
    const auto number = [](auto& known, const std::string& key) {
      return known.emplace(key, static_cast<std::int64_t>(known.size())).first->second;
    };
    std::vector<LayerNode> nodes;
    for (std::size_t i = 0; i < graph_->nodes.size(); ++i) {
      const NodeData& node = graph_->nodes[i];
      LayerNode& rule = nodes.emplace_back();
      const Step* step = step_of_node_[i];
      rule.function = number(functions, step != nullptr ? key_of(node, *step) : "=" + std::to_string(i));
      for (const ParameterUse& use : node.parameters) rule.parameters.push_back(number(parameters, use.path));
      if (step == nullptr) {
        rule.parents = node.parents;
        continue;
      }
      for (const StepRead& argument : reads_of(*step)) {
        for (const Read& read : argument.reads) {
          const Mixture sources = sources_of(read);
          const std::int64_t parent = sources.empty() ? -1 : node_of_value_[at(sources.front())];
          rule.parents.push_back(parent < static_cast<std::int64_t>(i) ? parent : -1);
        }
      }
    }
    const auto layers = same_layers(nodes);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      graph_->nodes[i].layer = layers[i].layer;
      graph_->nodes[i].pass = layers[i].pass;
    }
  }

  void describe_arguments(NodeData& node, const Step& step) const {
    const auto tensors = reads_of(step);
    const auto add_tensors = [&](const StepRead& argument) {
      Argument described{argument.argument, "", {}};
      const bool list = argument.reads.size() != 1 || argument.reads[0].form != Read::Form::plain;
      for (const Read& read : argument.reads) {
        if (!described.text.empty()) described.text += ", ";
        std::string text;
        std::int64_t first = -1;
        for (const std::int64_t source : sources_of(read)) {
          const std::int64_t used = parameter_of(source), constant = constant_of(source);
          const std::int64_t parent = used >= 0 || constant >= 0 ? -1 : node_of_value_[at(source)];
          if (used < 0 && constant < 0 && parent < 0) continue;
          text += (text.empty() ? "" : "+") + (used >= 0       ? log_.parameters[at(used)].path
                                               : constant >= 0 ? log_.constants[at(constant)]
                                                               : graph_->nodes[at(parent)].label);
          if (first < 0) first = parent;
        }
        described.text += text.empty() ? "None" : text;
        described.nodes.push_back(first);
      }
      if (list) described.text = "[" + described.text + "]";
      node.arguments.push_back(std::move(described));
    };
    if (step.linear) {
      for (const StepRead& argument : tensors) add_tensors(argument);
      return;
    }
    const Operation& operation = log_.operations[step.operations[0]];
    const auto& schema = operation.handle.schema().arguments();
    for (std::size_t i = 0; i < operation.arguments.size(); ++i) {
      const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const StepRead& read) {
        return read.argument == schema[i].name();
      });
      if (found != tensors.end()) {
        add_tensors(*found);
        continue;
      }
      const c10::IValue& value = operation.arguments[i];
      const bool dtype = schema[i].name() == "dtype" && value.isInt();
      node.arguments.push_back(
          {schema[i].name(),
           dtype ? storage::dtype_name(static_cast<at::ScalarType>(value.toInt())) : text_of(value),
           {}});
    }
  }

  /// Marks the nodes whose tensors were kept; with names, forgets the others.
  void select() {
    std::set<std::int64_t> meant;
    for (const std::string& name : log_.options.names()) {
      const auto found = look_up_all(*graph_, name);
      TORCH_CHECK_INDEX(!found.empty(), "views::trace::TraceOptions::save: \"", name,
                        "\" finds nothing in this pass; ", instead_of(*graph_, name), ".");
      for (const std::int64_t position : found) meant.insert(position);
    }
    const bool all = log_.options.names().empty();
    std::set<std::int64_t> values;
    for (std::size_t i = 0; i < graph_->nodes.size(); ++i) {
      NodeData& node = graph_->nodes[i];
      node.saved = log_.values[at(node.value)].kept.defined() &&
                   (all || meant.count(static_cast<std::int64_t>(i)) > 0);
      if (node.saved) values.insert(node.value);
    }
    if (all) return;
    for (std::size_t i = 0; i < log_.values.size(); ++i) {
      if (values.count(static_cast<std::int64_t>(i)) == 0) log_.values[i].kept.reset();
    }
  }

  Log& log_;
  std::shared_ptr<Graph> graph_;
  std::vector<std::int64_t> node_of_value_;
  std::vector<const Step*> step_of_node_;
};

}  // namespace

std::shared_ptr<const Graph> build_graph(const std::shared_ptr<Log>& log) {
  const std::lock_guard lock(log->mutex);
  return Builder(log).build();
}

}  // namespace torchtap::views::trace::detail
