// The graph of a live run as JSON.
#include <algorithm>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/views/explorer/detail/json.hpp>
#include <torchtap/views/explorer/detail/live_run.hpp>
#include <torchtap/views/explorer/detail/run_file.hpp>

namespace torchtap::views::explorer::detail {
namespace {

class GraphWriter {
 public:
  GraphWriter(const Run& run, const Graph& graph, Mode mode)
      : run_(run), graph_(graph), mode_(mode), seen_(graph.of(mode).call_counts()) {}

  std::string text() {
    const ModeGraph& of = graph_.of(mode_);
    json_.begin();
    json_.field("version", of.version());
    json_.field("mode", name_of(mode_));
    json_.field("forwards", of.forwards());
    json_.field("traced", of.traced());
    json_.list("calls");
    for (const auto call : of.calls()) write_call(call);
    json_.end_list();
    json_.list("edges");
    for (const auto& [edge, seen] : of.edge_counts()) write_edge(edge, seen);
    json_.end_list();
    json_.end();
    return json_.text();
  }

 private:
  void write_call(std::int32_t call) {
    const CallInfo& info = graph_.calls[static_cast<std::size_t>(call)];
    const ModuleInfo& module = graph_.modules[static_cast<std::size_t>(info.module)];
    const ModeGraph::Ports& ports = graph_.of(mode_).ports(call);
    const auto seen = seen_.find(call);
    json_.begin();
    json_.field("id", call);
    if (info.parent < 0) {
      json_.null("parent");
    } else {
      json_.field("parent", info.parent);
    }
    json_.field("path", module.path);
    json_.field("call", info.call);
    json_.field("type", module.type);
    json_.field("name", module.name);
    json_.field("seen", seen == seen_.end() ? 0 : seen->second);
    write_ports("inputs", ports.inputs);
    write_ports("outputs", ports.outputs);
    json_.list("parameters");
    for (std::size_t i = 0; i < module.parameters.size(); ++i) write_parameter(module.parameters[i]);
    json_.end_list();
    json_.field("attributes", module.attributes);
    json_.object("series");
    for (const What what : {What::input, What::output, What::grad_input, What::grad_output, What::attach}) {
      const bool in = what == What::input || what == What::grad_input;
      write_series(call, what, what == What::attach ? 1 : in ? ports.inputs.size() : ports.outputs.size());
    }
    json_.end();
    json_.end();
  }

  void write_ports(const char* name, const std::vector<PortInfo>& ports) {
    json_.list(name);
    for (const PortInfo& port : ports) {
      json_.begin();
      json_.field("dtype", port.defined ? base::dtype_text(port.dtype) : "");
      json_.shape("shape", port.shape);
      json_.end();
    }
    json_.end_list();
  }

  /// One series for all calls of all modules that have it.
  void write_parameter(const ParameterInfo& parameter) {
    const std::int32_t first = graph_.first_call(parameter.owner);
    json_.begin();
    json_.field("name", parameter.name);
    json_.shape("shape", parameter.shape);
    json_.field("dtype", base::dtype_text(parameter.dtype));
    json_.field("learnable", parameter.learnable);
    json_.field("series", run_.find({first, What::parameter, parameter.position, -1}));
    json_.field("grad_series", run_.find({first, What::parameter_grad, parameter.position, -1}));
    json_.end();
  }

  void write_series(std::int32_t call, What what, std::size_t ports) {
    json_.list(name_of(what));
    for (std::size_t i = 0; i < ports; ++i) {
      json_.item(run_.find({call, what, static_cast<std::int32_t>(i), static_cast<std::int32_t>(mode_)}));
    }
    json_.end_list();
  }

  void write_edge(const Edge& edge, std::int64_t seen) {
    json_.begin();
    json_.field("caller", edge.caller);
    for (const bool from : {true, false}) {
      const Port& port = from ? edge.from : edge.to;
      json_.object(from ? "from" : "to");
      json_.field("call", port.call);
      json_.field("port", std::max(port.port, Port::extra));
      json_.end();
    }
    json_.field("kind", edge.kind());
    json_.field("seen", seen);
    json_.end();
  }

  const Run& run_;
  const Graph& graph_;
  const Mode mode_;
  const std::map<std::int32_t, std::int64_t> seen_;
  Json json_;
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
