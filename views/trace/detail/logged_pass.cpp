// Connects a log with a model and a thread.
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <unordered_map>

#include <torchtap/base/error.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/views/trace/detail/graph.hpp>
#include <torchtap/views/trace/detail/logged_pass.hpp>

namespace torchtap::views::trace::detail {
namespace {

/// Calls `visit(name, tensor)` for each tensor in a value, with its place in it as the name.
void for_each_named(const c10::IValue& value, const std::string& name,
                    const std::function<void(const std::string&, const at::Tensor&)>& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(name, value.toTensor());
  } else if (value.isList()) {
    std::size_t i = 0;
    for (const c10::IValue& element : value.toListRef()) {
      for_each_named(element, name + "." + std::to_string(i++), visit);
    }
  } else if (value.isTuple()) {
    std::size_t i = 0;
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      for_each_named(element, name + "." + std::to_string(i++), visit);
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      const c10::IValue& key = entry.key();
      const std::string text = key.isString() ? key.toStringRef()
                               : key.isInt()  ? std::to_string(key.toInt())
                                              : "?";
      for_each_named(entry.value(), name + "." + text, visit);
    }
  }
}

/// Calls `visit(tensor)` for each tensor that the nodes, and those in their blocks, have as constants.
template <class Visit>
void for_each_constant(torch::jit::graph_node_list nodes, const Visit& visit) {
  for (const torch::jit::Node* node : nodes) {
    if (node->kind() == c10::prim::Constant) {
      const auto value = torch::jit::toIValue(node->output());
      if (value && value->isTensor() && value->toTensor().defined()) visit(value->toTensor());
    }
    for (const torch::jit::Block* block : node->blocks()) {
      for_each_constant(const_cast<torch::jit::Block*>(block)->nodes(), visit);
    }
  }
}

}  // namespace

LoggedPass::LoggedPass(TraceOptions options) : log_(std::make_shared<Log>()) {
  log_->options = std::move(options);
  const TraceOptions& given = log_->options;
  log_->replayable = given.saved() == Save::all && !given.predicate() && given.names().empty() &&
                     !given.transform() && !given.device() && !given.dtype() && !given.memory_budget();
}

LoggedPass::~LoggedPass() {
  detach();
}

/// TorchScript is compiled once for all of them.
void LoggedPass::detach() noexcept {
  hooks::DeferredCompile batch;
  handles_.clear();
}

void LoggedPass::attach(const std::vector<model::ModuleRef>& modules) {
  add_parameters(modules);
  add_constants(modules);
  if (!modules.empty()) log_->model = modules.front().type();
  for (const model::ModuleRef& module : modules) {
    LoggedModule logged{module.path(), module.type(), module.reachable(), 0, {}};
    for (std::size_t i = 0; i < log_->parameters.size(); ++i) {
      const std::string prefix = module.path().empty() ? "" : module.path() + ".";
      if (log_->parameters[i].path.compare(0, prefix.size(), prefix) == 0) {
        logged.parameters.push_back(static_cast<std::int64_t>(i));
      }
    }
    log_->modules.push_back(std::move(logged));
    if (!module.has_forward()) log_->modules.back().reached = true;  // there is nothing to reach
  }
  log_->nesting = watch::Nesting(modules);
  handles_ = watch::watch_calls(modules, log_);
}

void LoggedPass::add_parameters(const std::vector<model::ModuleRef>& modules) {
  for (const model::ModuleRef& module : modules) {
    const std::string prefix = module.path().empty() ? "" : module.path() + ".";
    for (const model::Held& held : model::held_by(module)) {
      ParameterUse use;
      use.path = prefix + held.name;
      use.buffer = held.buffer;
      log_->add_parameter(held.tensor, std::move(use));
    }
  }
}

/// Constant tensors in the code of TorchScript; a traced model has one for each number.
void LoggedPass::add_constants(const std::vector<model::ModuleRef>& modules) {
  const operations::Unseen unseen;
  for (const model::ModuleRef& module : modules) {
    if (!module.scripted()) continue;
    log_->scripted = true;
    for (const torch::jit::Method& method : module.script().get_methods()) {
      for_each_constant(method.graph()->nodes(),
                        [&](const at::Tensor& tensor) { log_->add_constant(tensor); });
    }
  }
}

void LoggedPass::input(const c10::IValue& value, const std::string& name) {
  const operations::Unseen unseen;
  const std::lock_guard lock(log_->mutex);
  auto& inputs = log_->inputs;
  const std::string start = name.empty() ? "input." + std::to_string(log_->input_values++) : name;
  for_each_named(value, start, [&](const std::string& path, const at::Tensor& tensor) {
    inputs.push_back({path, log_->add_input(tensor, static_cast<std::int64_t>(inputs.size()))});
  });
}

void LoggedPass::output(const c10::IValue& value, const std::string& name) {
  const operations::Unseen unseen;
  const std::lock_guard lock(log_->mutex);
  const std::string start = name.empty() ? "output." + std::to_string(log_->output_values++) : name;
  for_each_named(value, start,
                 [&](const std::string& path, const at::Tensor& tensor) { log_->add_output(path, tensor); });
}

void LoggedPass::start() {
  TORCH_CHECK_VALUE(!finished_, "views::trace::Tracer::start: the history was taken; use a new Tracer.");
  TORCH_CHECK_VALUE(!scope_.has_value(),
                    "views::trace::Tracer::start: it has begun already; call stop() first.");
  {
    const operations::Unseen unseen;
    log_->start();
  }
  try {
    scope_.emplace([log = log_](operations::Event& event) { log->run(event); }, log_->options.level());
  } catch (...) {
    log_->stop("");
    throw;
  }
}

void LoggedPass::stop(const std::string& error) noexcept {
  scope_.reset();
  log_->stop(error);
}

History LoggedPass::finish() {
  TORCH_CHECK_VALUE(!finished_,
                    "views::trace::Tracer::finish: the history was taken already; use a new Tracer.");
  stop("");
  detach();
  auto graph = build_graph(log_);
  finished_ = true;
  log_->close();
  return History(std::move(graph));
}

}  // namespace torchtap::views::trace::detail
