// Calls as they begin and end.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <algorithm>
#include <thread>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/explorer/detail/thread_forward.hpp>
#include <torchtap/views/explorer/detail/watched_model.hpp>
#include <torchtap/views/explorer/explorer.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr int most_traces = 64;  // of forwards in a row that might show calls which were missed

std::vector<PortInfo> infos_of(const std::vector<at::Tensor>& tensors) {
  std::vector<PortInfo> infos;
  for (const at::Tensor& tensor : tensors) {
    PortInfo info;
    if (tensor.defined()) info = {true, tensor.scalar_type(), tensor.sizes().vec()};
    infos.push_back(std::move(info));
  }
  return infos;
}

/// Hands the gradient of one output of a node to a watched model; changes nothing.
class Listener final : public torch::autograd::FunctionPreHook {
 public:
  Listener(std::shared_ptr<GradientTargets> targets, std::uint32_t output)
      : targets_(std::move(targets)), output_(output) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    if (output_ < gradients.size() && gradients[output_].defined()) {
      if (const auto watched = targets_->watched.lock()) watched->gradient(*targets_, gradients[output_]);
    }
    return gradients;
  }
  /// Whether it listens to this output for this watched model.
  bool is(std::uint64_t serial, std::uint32_t output) const noexcept {
    return targets_->serial == serial && output_ == output;
  }
  const std::shared_ptr<GradientTargets>& targets() const noexcept { return targets_; }

 private:
  std::shared_ptr<GradientTargets> targets_;
  std::uint32_t output_;
};

}  // namespace

std::vector<at::Tensor> all(const hooks::Tensors& tensors) {
  std::vector<at::Tensor> result;
  for (std::int64_t i = 0; i < tensors.size(); ++i) result.push_back(tensors[i]);
  return result;
}

std::shared_ptr<const watch::Column> Measured::of(const at::Tensor& tensor) {
  const std::int64_t version = tensor.is_inference() ? -1 : static_cast<std::int64_t>(tensor._version());
  const One* const known = known_.find(tensor);
  // A tensor of inference mode does not count its versions.
  if (known != nullptr && version >= 0 && known->version == version) return known->column;
  auto column = std::make_shared<const watch::Column>(watch::measure(tensor));
  known_.set(tensor, {version, column});
  return column;
}

/// A call that cannot be around this one has ended by an exception. TorchScript knows no recursion, and calls
/// attributes only.
void WatchedModel::drop_ended(Forward& forward, std::int32_t module, int depth) {
  const auto ended = [&](const Forward::OpenCall& running) {
    return nesting_.ended(static_cast<std::size_t>(running.module), running.depth,
                          static_cast<std::size_t>(module), depth);
  };
  while (!forward.open.empty() && ended(forward.open.back())) {
    if (forward.open.size() == 1) return abandon(forward);
    if (forward.looks()) {
      close_call(forward, {});
    } else {
      forward.open.pop_back();
    }
  }
}

/// The forward threw. If it was looked at, the next one has to be in its place.
void WatchedModel::abandon(Forward& forward) {
  if (forward.traced) {
    const std::lock_guard lock(mutex_);
    ++wanted_traces_[static_cast<std::size_t>(forward.mode)];
  }
  ThreadForward::close_scopes_inside(forward);
  if (forward.runs != nullptr) *forward.runs = false;
  forward = Forward();
}

void WatchedModel::call_begins(std::size_t index, int depth, hooks::Event& event) {
  guarded([&] {
    const auto module = static_cast<std::int32_t>(index);
    Forward& forward = forward_here();
    drop_ended(forward, module, depth);
    if (hides_root_ && !joined_) close_missed(forward, module);
    if (forward.open.empty()) {
      if (module != 0 && !hides_root_) return;  // outside of the model
      begin(forward);
      if (hides_root_) begin_hidden_root(forward, event);
    }
    if (hides_root_ && !joined_) open_missed(forward, module, depth, event);
    mix(forward.pass.hash, 2 * static_cast<std::uint64_t>(module) + 1);
    forward.open.push_back({module, depth});
    if (!forward.looks()) return;
    const auto began = Pace::Clock::now();
    {
      const base::RecordingMode quiet;
      open_call(forward, forward.open.back(), all(event.inputs()));
    }
    if (forward.traced && !forward.scope) {
      forward.scope = trace(forward.flow);
    }
    pace_.spend(Pace::Clock::now() - began);
  });
}

/// Reports the operations of this thread, and of threads that it starts, to `flow`.
std::unique_ptr<operations::Scope> WatchedModel::trace(const std::shared_ptr<Flow>& flow) const {
  const auto follow = [flow, counts = root_counts_,
                       thread = std::this_thread::get_id()](operations::Event& event) {
    // A forward that threw has left its scope open; the operations that run now are not the model's.
    if (counts && std::this_thread::get_id() == thread && watch::calls_here() == 0) return;
    flow->run(event);
  };
  return std::make_unique<operations::Scope>(follow, operations::Level::leaf);
}

/// Decides whether this forward is recorded, traced or neither.
void WatchedModel::begin(Forward& forward) {
  const bool trains = is_training_();
  forward.mode = trains ? Mode::train : Mode::eval;
  compare_parameters();
  forward.learns = trains && at::GradMode::is_enabled();
  forward.counts = root_counts_;
  forward.began = ThreadForward::next();
  forward.runs = std::make_shared<std::atomic<bool>>(true);
  const std::lock_guard lock(mutex_);
  forward.recorded = open_step(trains, forward.learns);
  forward.step = step_;
  int& wanted = wanted_traces_[static_cast<std::size_t>(forward.mode)];
  // The first forward of a mode that returns, and later ones as time allows.
  const bool first = !run_->has(forward.mode);
  forward.traced = wanted > 0 && (first || pace_.affords(Pace::Clock::now()));
  if (!forward.traced) return;
  --wanted;
  forward.flow = std::make_shared<Flow>(
      constants_, [weak = weak_from_this(), mode = forward.mode](std::int32_t caller, const std::string& name,
                                                                 std::int32_t nth, const at::Tensor& result) {
        const auto watched = weak.lock();
        return watched == nullptr ? -1 : watched->operation(mode, caller, name, nth, result);
      });
}

/// An operation that the flow of data makes a call of.
std::int32_t WatchedModel::operation(Mode mode, std::int32_t caller, const std::string& name,
                                     std::int32_t nth, const at::Tensor& result) {
  CallInfo info;
  info.parent = caller;
  info.nth = nth;
  info.call = nth;
  info.module = attached(run_->with_graph([&](const Graph& graph) {
    return graph.calls[static_cast<std::size_t>(caller)].module;
  }),
                         name, "operation");
  return run_->with_graph([&](Graph& graph) {
    const std::int32_t call = graph.call(info);
    for (const bool output : {false, true}) graph.of(mode).see(call, output, infos_of({result}));
    return call;
  });
}

void WatchedModel::open_call(Forward& forward, Forward::OpenCall& running,
                             const std::vector<at::Tensor>& inputs) {
  CallInfo info;
  info.module = running.module;
  info.call = forward.calls_of[running.module]++;
  if (forward.open.size() > 1) {
    Forward::OpenCall& outer = forward.open[forward.open.size() - 2];
    info.parent = outer.call;
    info.nth = outer.counts[running.module]++;
  }
  run_->with_graph([&](Graph& graph) {
    running.call = graph.call(info);
    graph.of(forward.mode).see(running.call, false, infos_of(inputs));
  });
  forward.pass.calls.push_back(running.call);
  if (forward.traced) forward.flow->enter(running.call, inputs);
  if (forward.recorded) values(forward, running.call, What::input, inputs);
}

void WatchedModel::close_call(Forward& forward, const std::vector<at::Tensor>& outputs) {
  const std::int32_t call = forward.open.back().call;
  run_->with_graph([&](Graph& graph) { graph.of(forward.mode).see(call, true, infos_of(outputs)); });
  if (forward.traced) forward.flow->leave(outputs);
  if (forward.recorded) values(forward, call, What::output, outputs);
  forward.open.pop_back();
}

void WatchedModel::call_ends(std::size_t index, hooks::Event& event) {
  guarded([&] {
    const auto module = static_cast<std::int32_t>(index);
    Forward& forward = forward_here();
    const auto is_this = [&](const Forward::OpenCall& running) { return running.module == module; };
    if (std::none_of(forward.open.begin(), forward.open.end(), is_this)) return;
    const auto began = Pace::Clock::now();
    while (!is_this(forward.open.back())) {  // ended by an exception that the model caught
      if (forward.looks()) {
        close_call(forward, {});
      } else {
        forward.open.pop_back();
      }
    }
    mix(forward.pass.hash, 2 * static_cast<std::uint64_t>(module));
    const bool last = forward.open.size() == 1;
    const bool looked = forward.looks();
    std::vector<at::Tensor> outputs;
    if (last || looked) outputs = all(event.outputs());
    if (looked) {
      const base::RecordingMode quiet;
      close_call(forward, outputs);
      if (!last && forward.open.back().missed) forward.open.back().last = outputs;
    } else {
      forward.open.pop_back();
    }
    if (last) {
      forward.scope.reset();
      end(forward, outputs);
    }
    if (looked) pace_.spend(Pace::Clock::now() - began);
  });
}

void WatchedModel::end(Forward& forward, const std::vector<at::Tensor>& outputs) {
  Forward done = std::move(forward);
  forward = Forward();
  if (done.runs != nullptr) *done.runs = false;
  if (done.traced) {
    done.pass.calls = done.flow->calls();
    done.pass.edges = done.flow->edges();
    pace_.spend(done.flow->own_time());
  }
  const bool known = run_->with_graph([&](Graph& graph) {
    ModeGraph& of = graph.of(done.mode);
    if (!done.traced) return of.count(done.pass.hash);
    of.add(done.pass);
    return true;
  });
  if (done.learns) notice_backward(outputs, done.step);
  bool parameters = false;
  {
    const std::lock_guard lock(mutex_);
    const auto mode = static_cast<std::size_t>(done.mode);
    if (done.traced && done.pass.hash == missing_[mode]) wanted_traces_[mode] = 0;
    if (!known) {
      missing_[mode] = done.pass.hash;
      wanted_traces_[mode] = most_traces;
    }
    if ((done.learns && !idle_) || !done.recorded) return;
    parameters = !any_backward_ && !std::exchange(parameters_read_, true);
  }
  if (parameters) record_parameters(false);  // nothing else would
  pace_.end_record();
  write_pace();
  run_->save();
}

void WatchedModel::values(Forward& forward, std::int32_t call, What what,
                          const std::vector<at::Tensor>& tensors) {
  const auto mode = static_cast<std::int32_t>(forward.mode);
  const bool input = what == What::input;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    const auto index = static_cast<std::int32_t>(i);
    if ((options.record() & (input ? Input : Output)) != 0)
      value(forward, {call, what, index, mode}, tensors[i]);
    if ((options.record() & (input ? GradInput : GradOutput)) != 0)
      want_gradient(forward, {call, input ? What::grad_input : What::grad_output, index, mode}, tensors[i]);
  }
}

void WatchedModel::value(Forward& forward, const SeriesKey& key, const at::Tensor& tensor) {
  watch::Column column = *forward.measured.of(tensor);
  column.first_step = column.last_step = forward.step;
  run_->add(run_->series(key, ""), column);
}

/// Listens to the gradient of this version of the tensor, also when it is changed in place later, from now on
/// for this step. Null if it has none.
std::shared_ptr<GradientTargets> WatchedModel::listen(const at::Tensor& tensor, std::int64_t step,
                                                      Forward* forward) {
  if (!tensor.defined() || !tensor.requires_grad()) return nullptr;
  const auto edge = torch::autograd::impl::gradient_edge(tensor);
  if (edge.function == nullptr) return nullptr;
  torch::autograd::Node& node = *edge.function;
  if (forward != nullptr) forward->nodes.push_back(edge.function);
  const auto runs = forward != nullptr ? forward->runs : nullptr;
  const bool leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node) != nullptr;
#if TORCH_VERSION_MAJOR >= 2
  // A leaf's node calls the hooks of its tensor, which stay when the graph is gone, instead of these.
  const auto& all = leaf ? node.pre_hooks() : node.tensor_pre_hooks();
#else
  const auto& all = node.pre_hooks();
#endif
  for (const auto& hook : all) {
    const auto* const ours = dynamic_cast<const Listener*>(hook.get());
    if (ours == nullptr || !ours->is(serial_, edge.input_nr)) continue;
    const std::lock_guard lock(ours->targets()->mutex);
    ours->targets()->runs = runs;
    if (ours->targets()->step != step) {
      ours->targets()->step = step;
      ours->targets()->arrived = false;
      ours->targets()->keys.clear();
    }
    return ours->targets();
  }
  auto targets = std::make_shared<GradientTargets>();
  targets->watched = weak_from_this();
  targets->serial = serial_;
  targets->leaf = leaf;
  targets->step = step;
  targets->runs = runs;
  auto listener = std::make_unique<Listener>(targets, edge.input_nr);
#if TORCH_VERSION_MAJOR >= 2
  if (!leaf) {
    node.add_tensor_pre_hook(std::move(listener));
    return targets;
  }
#endif
  node.add_pre_hook(std::move(listener));
  return targets;
}

void WatchedModel::want_gradient(Forward& forward, const SeriesKey& key, const at::Tensor& tensor) {
  const auto targets = listen(tensor, forward.step, &forward);
  if (targets == nullptr) return;
  const std::lock_guard lock(targets->mutex);
  const bool known = std::any_of(targets->keys.begin(), targets->keys.end(),
                                 [&](const SeriesKey& one) { return !(one < key) && !(key < one); });
  if (!known) targets->keys.push_back(key);
}

void WatchedModel::gradient(GradientTargets& targets, const at::Tensor& gradient) {
  guarded([&] {
    const auto began = Pace::Clock::now();
    decltype(targets.keys) keys;
    watch::Column column;
    bool inside = false;  // the forward itself asks for gradients, say of an energy; no step ends with that
    {
      const std::lock_guard lock(targets.mutex);
      inside = !hides_root_ && targets.runs != nullptr && *targets.runs;
      // The node was kept, and this is the backward of a later step, which did not ask for it.
      if ((targets.leaf || targets.arrived) && targets.step != step()) return;
      targets.arrived = true;
      keys = targets.keys;
      column.first_step = column.last_step = targets.step;
    }
    if (!inside) backward_begins();
    if (keys.empty()) return;
    const std::int64_t at = column.first_step;
    column = watch::measure(gradient);
    column.first_step = column.last_step = at;
    for (const SeriesKey& key : keys) run_->add(run_->series(key, ""), column);
    pace_.spend(Pace::Clock::now() - began);
  });
}

/// The next forward after a backward begins a step, whether or not this one is recorded.
void WatchedModel::notice_backward(const std::vector<at::Tensor>& outputs, std::int64_t step) {
  std::vector<std::weak_ptr<GradientTargets>> listening;
  bool any = outputs.empty();  // the outputs of a root that cannot be seen are unknown
  for (const at::Tensor& tensor : outputs) {
    const auto targets = listen(tensor, step);
    any = any || targets != nullptr;
    if (targets != nullptr && !targets->leaf) listening.emplace_back(targets);
  }
  const std::lock_guard lock(mutex_);
  if (any_backward_) return;
  if (!any) went_idle_ = true;  // there is nothing to begin one from
  unanswered_.insert(unanswered_.end(), listening.begin(), listening.end());
}

/// Whether a forward in training mode was given up without a backward: every tensor that could have begun one
/// has gone. With `mutex_`.
bool WatchedModel::went_idle() {
  const auto gone = std::remove_if(unanswered_.begin(), unanswered_.end(),
                                   [](const auto& targets) { return targets.expired(); });
  if (gone != unanswered_.end()) went_idle_ = true;
  unanswered_.erase(gone, unanswered_.end());
  return std::exchange(went_idle_, false);
}

/// A tensor that the program names, as a call that returns its input.
void WatchedModel::attach(const at::Tensor& tensor, const char* name) {
  guarded([&] {
    Forward& forward = forward_here();
    if (forward.open.empty() || !tensor.defined()) return;
    const std::int32_t module = attached(forward.open.back().module, name, "attach");
    mix(forward.pass.hash, 2 * static_cast<std::uint64_t>(module) + 1);
    if (!forward.looks()) return;
    const auto began = Pace::Clock::now();
    const base::RecordingMode quiet;
    forward.open.push_back({module, forward.open.back().depth});
    Forward::OpenCall& running = forward.open.back();
    const bool recorded = std::exchange(forward.recorded, false);  // one series, and not input and output
    open_call(forward, running, {tensor});
    const SeriesKey key{running.call, What::attach, 0, static_cast<std::int32_t>(forward.mode)};
    close_call(forward, {tensor});
    forward.recorded = recorded;
    if (recorded && (options.record() & Output) != 0) value(forward, key, tensor);
    if (recorded && (options.record() & GradOutput) != 0)
      want_gradient(forward, {key.call, What::grad_output, 0, key.mode}, tensor);
    pace_.spend(Pace::Clock::now() - began);
  });
}

/// The module that stands for tensors or operations of this name inside of a module.
std::int32_t WatchedModel::attached(std::int32_t around, const std::string& name, const char* type) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = attached_.emplace(std::tuple(around, std::string(type), name), 0);
  if (!is_new) return found->second;
  found->second = run_->with_graph([&](Graph& graph) {
    ModuleInfo info;
    const std::string& path = graph.modules[static_cast<std::size_t>(around)].path;
    info.path = path.empty() ? name : path + "." + name;
    info.type = type;
    info.name = name;
    graph.modules.push_back(std::move(info));
    return static_cast<std::int32_t>(graph.modules.size()) - 1;
  });
  return found->second;
}

std::atomic<int> watching{0};

}  // namespace torchtap::views::explorer::detail

namespace torchtap::views::explorer {

const at::Tensor& attach(const at::Tensor& tensor, const char* name) {
  if (detail::watching.load(std::memory_order_relaxed) == 0) return tensor;
  for (std::size_t i = 0; i < detail::ThreadForward::all().size(); ++i) {
    const detail::ThreadForward& one = detail::ThreadForward::all()[i];
    if (one.forward->open.empty() || one.is_stale()) continue;
    if (const auto watched = one.watched.lock()) watched->attach(tensor, name);
  }
  return tensor;
}

at::Tensor attach(at::Tensor&& tensor, const char* name) {
  attach(static_cast<const at::Tensor&>(tensor), name);
  return std::move(tensor);
}

}  // namespace torchtap::views::explorer
