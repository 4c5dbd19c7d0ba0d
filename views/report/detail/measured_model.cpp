// Modules and nodes of autograd as they begin and end.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/report/detail/measured_model.hpp>
#include <torchtap/views/report/detail/stopped_clock.hpp>
#include <torchtap/views/watch/same_modules.hpp>

namespace torchtap::views::report::detail {
namespace {

/// The parameter whose gradient is about to be accumulated in this thread.
struct Coming {
  const MeasuredModel* measured = nullptr;
  std::int64_t module = -1;
};
thread_local Coming coming;

}  // namespace

MeasuredModel::MeasuredModel(const std::vector<model::ModuleRef>& modules, ReportOptions given)
    : options(std::move(given)),
      scripted(modules.front().scripted()),
      ledger_(make_tree(modules), watch::Nesting(modules)) {
  TORCH_CHECK_VALUE(options.warmup() >= 0, "views::report::Report: a warm-up of ", options.warmup(),
                    " repeats was asked for; pass 0 or more.");
}

std::int64_t MeasuredModel::now() const {
  if (options.clock()) return options.clock()();
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::vector<model::ModuleRef> MeasuredModel::modules() const {
  std::vector<model::ModuleRef> modules;
  for (const TreeNode& node : ledger_.tree) modules.push_back(node.module);
  return modules;
}

std::vector<hooks::Handle> MeasuredModel::attach_all() {
  return watch::watch_calls(modules(), weak_from_this());
}

void MeasuredModel::let_go() {
  Measurements last = results();
  {
    const hooks::DeferredCompile batch;
    script_handles.clear();
  }
  const std::lock_guard lock(mutex_);
  of_gone_ = std::move(last);
  let_go_of_modules();
  for (TreeNode& node : ledger_.tree) node.held.clear();
}

void MeasuredModel::let_go_of_modules() {
  const std::vector<model::ModuleRef> names = watch::names_of(modules());
  for (std::size_t i = 0; i < names.size(); ++i) ledger_.tree[i].module = names[i];
}

void MeasuredModel::follow(const std::vector<model::ModuleRef>& modules) {
  watch::check_same("views::report::Report::follow", this->modules(), modules);
  TORCH_CHECK_VALUE(modules.front().scripted() == scripted, "views::report::Report::follow: this ",
                    modules.front().type(), " is ", scripted ? "not " : "",
                    "a TorchScript model, unlike the model that was measured; make another report.");
  std::vector<TreeNode> tree = make_tree(modules);
  script_handles.clear();
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < tree.size(); ++i) {
    ledger_.tree[i].module = tree[i].module;
    ledger_.tree[i].held = std::move(tree[i].held);
  }
  of_gone_.reset();
  ++followed_;
}

void MeasuredModel::begin() {
  if (!made_here_) made_here_ = base::MadeHere();  // a child measures for itself
  const std::lock_guard lock(mutex_);
  ledger_.counts_times = recorded_ >= options.warmup();
  ledger_.begin(std::this_thread::get_id());
  search_.begin(recorded_);
  owners_.forget();
  arrivals_.clear();
  not_counted_.clear();
  raised_ = false;
  for (std::size_t i = 0; i < ledger_.tree.size(); ++i) {
    TreeNode& node = ledger_.tree[i];
    node.gradient_arrived = false;
    for (const Held& held : node.held) {
      owners_.add(held.tensor, {held.path, node.module.path(), static_cast<std::int64_t>(i),
                                held.buffer ? Owned::buffer : Owned::parameter});
    }
  }
  gradients_arrived_ = false;
  idle_nodes_ = 0;
  spent_ = 0;
  open = true;
  phase_began_ = now();
}

void MeasuredModel::set_phase(Phase phase) {
  if (!runs()) return;
  const std::lock_guard lock(mutex_);
  if (!open) return;
  count_spent();
  ledger_.set_phase(phase);
  measure_gradients();  // before the program clears them
  phase_began_ = now();
}

bool MeasuredModel::in_call() const noexcept {
  if (!runs()) return false;
  const std::lock_guard lock(mutex_);
  return open && ledger_.in_call();
}

/// Adds the time since the last phase began, unless that phase is charged to no module.
void MeasuredModel::count_spent() {
  const std::int64_t moment = now();
  if (!ledger_.idle()) spent_ += moment - phase_began_;
  phase_began_ = moment;
}

void MeasuredModel::end() noexcept {
  if (!runs()) return;
  const std::lock_guard lock(mutex_);
  if (!open) return;
  open = false;
  count_spent();
  std::int64_t own = ledger_.thread().own;
  for (const BadHeld& bad : search_.bad_held) {
    for (TreeNode& node : ledger_.tree) {
      for (const Held& held : node.held) {
        if (held.path == bad.path) node.parameter_values = bad.values;
      }
    }
  }
  ledger_.end();
  ++recorded_;
  if (ledger_.counts_times) {
    ++repeats_;
    seconds_ += static_cast<double>(spent_) * 1e-9;
    own_seconds_ += static_cast<double>(own) * 1e-9;
    for (int i = 0; i < 2; ++i)
      outside_seconds_[i] += static_cast<double>(ledger_.outside_nanoseconds[i]) * 1e-9;
  }
  ledger_.outside_nanoseconds[0] = ledger_.outside_nanoseconds[1] = 0;
  search_.forget();
  owners_.forget();
  arrivals_.clear();
  measure_gradients();
}

/// Measures gradients of the modules whose parameters got one since the last call; others may hold gradients
/// that the program has cleared.
void MeasuredModel::measure_gradients() noexcept {
  if (!gradients_arrived_) return;
  gradients_arrived_ = false;
  guarded([&] { add_gradients(); });
}

void MeasuredModel::add_gradients() {
  const HeapWatch::Paused unwatched;
  for (TreeNode& node : ledger_.tree) {
    // A parameter that several modules share arrives at the first of them.
    const bool shares = std::any_of(node.held.begin(), node.held.end(),
                                    [](const Held& held) { return !held.buffer && !held.first; });
    if (!node.gradient_arrived && !shares) continue;
    node.gradient_arrived = false;
    node.gradient.reset();
    for (const Held& held : node.held) {
      if (held.buffer || !held.tensor.is_leaf() || !held.tensor.grad().defined()) continue;
      const at::Tensor& gradient = held.tensor.grad();
      watch::Column column = watch::measure(gradient);
      if (gradient.is_sparse()) {  // it does not have the zeros
        const std::int64_t all = gradient.numel() * (gradient.is_complex() ? 2 : 1);
        const std::uint64_t zeros = static_cast<std::uint64_t>(all) - column.count;
        column.count += zeros;
        column.zeros += zeros;
      }
      if (node.gradient) {
        node.gradient->merge(column);
      } else {
        node.gradient = std::move(column);
      }
    }
  }
}

void MeasuredModel::synchronize(const hooks::Tensors& tensors) const {
  if (!options.synchronize()) return;
  for (std::int64_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || tensors[i].device().is_cpu() || tensors[i].device().is_meta()) continue;
    const c10::impl::VirtualGuardImpl device(tensors[i].device().type());
    device.getStream(tensors[i].device()).synchronize();
    return;
  }
}

void MeasuredModel::look_at_values(const at::Tensor& tensor, NonFinite& sums) {
  if (options.non_finite() == OnNonFinite::ignore) return;
  const Kinds kinds = search_.kinds(tensor);
  if (!kinds.any()) return;
  const NonFinite values = count_non_finite(tensor);
  sums.nan += values.nan;
  (kinds.inf ? sums.inf : sums.intended_inf) += values.inf;
}

/// Notes at which node of autograd the tensor's gradient will arrive.
void MeasuredModel::expect_gradient(std::int64_t module, bool output, std::int64_t slot,
                                    const at::Tensor& tensor) {
  if (!tensor.requires_grad() || !at::GradMode::is_enabled()) return;
  const auto& node = tensor.grad_fn();
  if (node == nullptr) return;
  arrivals_[{node->thread_id(), node->sequence_nr()}].push_back(
      {module, output, slot, static_cast<std::uint32_t>(tensor.output_nr())});
}

void MeasuredModel::call_begins(std::size_t module, int depth, hooks::Event& event) {
  if (!runs()) return;
  const operations::Unseen unseen;
  hooks::Tensors& inputs = event.inputs();
  synchronize(inputs);
  const std::lock_guard lock(mutex_);
  if (ledger_.idle()) return;
  const Stopped stopped(*this, ledger_.thread());
  TreeNode& node = ledger_.tree[module];
  if (node.order < 0) node.order = ran_++;
  const bool outermost = stopped.thread.frames.empty();
  ledger_.enter(stopped.thread, static_cast<std::int64_t>(module), stopped.moment(), depth);
  node.given.clear();
  guarded([&] { note_inputs(static_cast<std::int64_t>(module), inputs, outermost); });
}

void MeasuredModel::note_inputs(std::int64_t module, const hooks::Tensors& inputs, bool outermost) {
  TreeNode& node = ledger_.tree[module];
  for (std::int64_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const std::string name = std::to_string(i);
    node.given.push_back(describe(name, inputs[i]));
    if (outermost) owners_.add(inputs[i], {"input " + name, node.module.path(), module, Owned::input});
    look_at_values(inputs[i], node.forward.in);
    expect_gradient(module, false, i, inputs[i]);
  }
}

void MeasuredModel::call_ends(std::size_t module, hooks::Event& event) {
  if (!runs()) return;
  const operations::Unseen unseen;
  hooks::Tensors& outputs = event.outputs();
  synchronize(outputs);
  const std::lock_guard lock(mutex_);
  if (ledger_.idle()) return;
  const Stopped stopped(*this, ledger_.thread());
  if (!ledger_.leave(stopped.thread, static_cast<std::int64_t>(module), stopped.moment())) return;
  ledger_.tree[module].inputs = ledger_.tree[module].given;
  ledger_.tree[module].outputs.clear();
  guarded([&] { note_outputs(static_cast<std::int64_t>(module), outputs); });
}

void MeasuredModel::note_outputs(std::int64_t module, const hooks::Tensors& outputs) {
  TreeNode& node = ledger_.tree[module];
  for (std::int64_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) continue;
    node.outputs.push_back(describe(std::to_string(i), outputs[i]));
    expect_gradient(module, true, i, outputs[i]);
    look_at_values(outputs[i], node.forward.out);
    if (options.non_finite() == OnNonFinite::ignore || !is_looked_through(outputs[i])) continue;
    watch::Column column = watch::measure(outputs[i]);
    if (column.posinf + column.neginf > 0 && !search_.kinds(outputs[i]).inf) {  // they are intended
      column.count -= column.posinf + column.neginf;
      column.posinf = column.neginf = 0;
    }
    const auto [values, is_new] = node.values.emplace(i, column);
    if (!is_new) values->second.merge(column);
  }
}

void MeasuredModel::parameter_comes(std::int64_t module) noexcept {
  coming = {this, module};
}

bool MeasuredModel::node_begins(const NodeStart& start) {
  const operations::Unseen unseen;
  std::int64_t module = -1, call = -1;
  if (start.accumulates && coming.measured == this) {  // or it is for another report of this thread
    module = coming.module;
    coming = {};
  }
  if (!runs()) return false;
  const std::lock_guard lock(mutex_);
  if (!open || ledger_.phase() == Phase::other) return false;
  const Stopped stopped(*this, ledger_.thread());
  if (start.accumulates) {
    if (module >= 0) ledger_.tree[module].gradient_arrived = gradients_arrived_ = true;
  } else {
    call = ledger_.call_of(start.thread, start.sequence);
    guarded([&] { note_gradients(start); });
  }
  const bool idle = ledger_.idle();
  if (idle && module < 0 && call < 0) return false;
  if (idle) ++idle_nodes_;
  ledger_.enter_node(stopped.thread, module, call, stopped.moment());
  return true;
}

/// The gradients of inputs and outputs of modules that arrive at the node.
void MeasuredModel::note_gradients(const NodeStart& start) {
  const auto found = arrivals_.find({start.thread, start.sequence});
  if (found == arrivals_.end()) return;
  for (const Arrival& arrival : found->second) {
    if (arrival.number >= start.gradients.size() || !start.gradients[arrival.number].defined()) continue;
    const at::Tensor& gradient = start.gradients[arrival.number];
    TreeNode& node = ledger_.tree[arrival.module];
    auto& infos = arrival.output ? node.output_gradients : node.input_gradients;
    TensorInfo info = describe(std::to_string(arrival.slot), gradient);
    const auto same = std::find_if(infos.begin(), infos.end(),
                                   [&](const TensorInfo& one) { return one.name == info.name; });
    if (same == infos.end()) {
      infos.push_back(std::move(info));
    } else {
      *same = std::move(info);
    }
    look_at_values(gradient, arrival.output ? node.backward.in : node.backward.out);
  }
}

void MeasuredModel::node_ends() {
  if (!made_here_) return;
  const std::lock_guard lock(mutex_);
  if (idle_nodes_ > 0) --idle_nodes_;
  if (!open) return;
  const Stopped stopped(*this, ledger_.thread());
  ledger_.leave_node(stopped.thread, stopped.moment());
}

}  // namespace torchtap::views::report::detail
