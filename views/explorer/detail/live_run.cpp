// The graph of a live run as JSON.
#include <algorithm>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/views/explorer/detail/live_run.hpp>
#include <torchtap/views/explorer/detail/run_file.hpp>

namespace torchtap::views::explorer::detail {
namespace {

json::Json json_of_shape(const std::vector<std::int64_t>& shape) {
  json::Json sizes = json::Json::array();
  for (const auto size : shape) sizes.push_back(size < 0 ? std::nullopt : std::optional(size));
  return sizes;
}

json::Json json_of(const std::vector<PortInfo>& ports) {
  json::Json list = json::Json::array();
  for (const PortInfo& port : ports) {
    list.push_back(
        {{"dtype", port.defined ? base::dtype_text(port.dtype) : ""}, {"shape", json_of_shape(port.shape)}});
  }
  return list;
}

json::Json json_of(const Edge& edge, std::int64_t seen) {
  const auto of = [](const Port& port) {
    return json::Json{{"call", port.call}, {"port", std::max(port.port, Port::extra)}};
  };
  return {{"caller", edge.caller},
          {"from", of(edge.from)},
          {"to", of(edge.to)},
          {"kind", edge.kind()},
          {"seen", seen}};
}

class GraphWriter {
 public:
  GraphWriter(const Run& run, const Graph& graph, Mode mode)
      : run_(run), graph_(graph), mode_(mode), seen_(graph.of(mode).call_counts()) {}

  std::string text() const {
    const ModeGraph& of = graph_.of(mode_);
    json::Json calls = json::Json::array(), edges = json::Json::array();
    for (const auto call : of.calls()) calls.push_back(json_of_call(call));
    for (const auto& [edge, seen] : of.edge_counts()) edges.push_back(json_of(edge, seen));
    return json::text({{"version", of.version()},
                       {"mode", name_of(mode_)},
                       {"forwards", of.forwards()},
                       {"traced", of.traced()},
                       {"calls", std::move(calls)},
                       {"edges", std::move(edges)}});
  }

 private:
  json::Json json_of_call(std::int32_t call) const {
    const CallInfo& info = graph_.calls[static_cast<std::size_t>(call)];
    const ModuleInfo& module = graph_.modules[static_cast<std::size_t>(info.module)];
    const ModeGraph::Ports& ports = graph_.of(mode_).ports(call);
    const auto seen = seen_.find(call);
    json::Json parameters = json::Json::array(), series;
    for (const ParameterInfo& parameter : module.parameters)
      parameters.push_back(json_of_parameter(parameter));
    for (const What what : {What::input, What::output, What::grad_input, What::grad_output, What::attach}) {
      const bool in = what == What::input || what == What::grad_input;
      const std::size_t count = what == What::attach ? 1 : in ? ports.inputs.size() : ports.outputs.size();
      json::Json& numbers = series[name_of(what)] = json::Json::array();
      for (std::size_t i = 0; i < count; ++i)
        numbers.push_back(
            run_.find({call, what, static_cast<std::int32_t>(i), static_cast<std::int32_t>(mode_)}));
    }
    return {{"id", call},
            {"parent", info.parent < 0 ? std::nullopt : std::optional(info.parent)},
            {"path", module.path},
            {"call", info.call},
            {"type", module.type},
            {"name", module.name},
            {"seen", seen == seen_.end() ? 0 : seen->second},
            {"inputs", json_of(ports.inputs)},
            {"outputs", json_of(ports.outputs)},
            {"parameters", std::move(parameters)},
            {"attributes", module.attributes},
            {"series", std::move(series)}};
  }

  /// One series for all calls of all modules that have it.
  json::Json json_of_parameter(const ParameterInfo& parameter) const {
    const std::int32_t first = graph_.first_call(parameter.owner);
    return {{"name", parameter.name},
            {"shape", json_of_shape(parameter.shape)},
            {"dtype", base::dtype_text(parameter.dtype)},
            {"learnable", parameter.learnable},
            {"series", run_.find({first, What::parameter, parameter.position, -1})},
            {"grad_series", run_.find({first, What::parameter_grad, parameter.position, -1})}};
  }

  const Run& run_;
  const Graph& graph_;
  const Mode mode_;
  const std::map<std::int32_t, std::int64_t> seen_;
};

}  // namespace

bool LiveRun::has(Mode mode) {
  return with_graph([&](const Graph& graph) { return graph.of(mode).forwards() > 0; });
}

std::map<std::int32_t, Run::CallName> LiveRun::call_names() {
  return with_graph([](const Graph& graph) {
    std::map<std::int32_t, CallName> names;
    for (std::size_t i = 0; i < graph.calls.size(); ++i) {
      const ModuleInfo& module = graph.modules[static_cast<std::size_t>(graph.calls[i].module)];
      CallName& name = names[static_cast<std::int32_t>(i)];
      name = {module.path, module.type, graph.calls[i].call, graph.calls[i].parent, {}};
      for (const ParameterInfo& parameter : module.parameters)
        name.dimensions.push_back(static_cast<std::int64_t>(parameter.shape.size()));
    }
    return names;
  });
}

void LiveRun::save_to(std::shared_ptr<RunFileWriter> file) {
  write_to(file);
  file_ = std::move(file);
}

/// Graphs of models that never do the same twice change at every step: they are written less often the longer
/// that takes. The counts of calls change at every step. For such a change alone, a graph is written again
/// only after ten times its bytes were written since, so a killed run has recent counts.
void LiveRun::save_graphs(bool all) {
  const auto began = std::chrono::steady_clock::now();
  if (!all && began < graphs_due_) return;
  for (const Mode mode : {Mode::train, Mode::eval}) {
    const std::string tag = structure_tag(mode);
    Saved& saved = saved_[static_cast<std::size_t>(mode)];
    if (tag.empty() || (tag == saved.tag && !all && file_->bytes() < saved.recount)) continue;
    const GraphText text = graph(mode);
    file_->graph(mode, text);
    saved = {tag, file_->bytes() + 10 * text.json.size()};
  }
  const auto now = std::chrono::steady_clock::now();
  graphs_due_ = now + 50 * (now - began);
}

void LiveRun::save() {
  const std::lock_guard lock(saving_);
  if (file_ == nullptr) return;
  save_graphs(false);
  file_->flush();
}

void LiveRun::end() {
  const std::lock_guard lock(saving_);
  if (file_ == nullptr) return;
  save_graphs(true);
  file_->end();
}

std::string LiveRun::structure_tag(Mode mode) {
  std::size_t series = 0;
  each_series([&](const Series&) { ++series; });
  return with_graph([&](const Graph& graph) {
    const ModeGraph& of = graph.of(mode);
    return of.forwards() == 0 ? "" : std::to_string(of.version()) + "-" + std::to_string(series);
  });
}

std::int64_t LiveRun::graph_version() {
  return with_graph(
      [](const Graph& graph) { return graph.of(Mode::train).version() + graph.of(Mode::eval).version(); });
}

Run::GraphText LiveRun::graph(Mode mode) {
  return with_graph([&](const Graph& graph) {
    const ModeGraph& of = graph.of(mode);
    GraphText text;
    if (of.forwards() == 0) return text;
    std::size_t series = 0;
    each_series([&](const Series&) { ++series; });
    text.version = of.version();
    text.tag =
        std::to_string(of.version()) + "-" + std::to_string(of.forwards()) + "-" + std::to_string(series);
    text.json = GraphWriter(*this, graph, mode).text();
    return text;
  });
}

}  // namespace torchtap::views::explorer::detail
