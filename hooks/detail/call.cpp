#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/version.h>

#include <algorithm>
#include <mutex>
#include <torchtap/core/error.hpp>
#include <torchtap/hooks/detail/call.hpp>
#include <torchtap/hooks/detail/registry.hpp>

namespace torchtap::hooks::detail {

using torch::autograd::Node;

/// What a thread knows of the forwards it is in.
struct ThreadState {
  struct Counter {
    std::uint64_t serial = 0;   // of the hook that the place belongs to
    std::uint64_t forward = 0;  // a scope: the forward it is in; another hook: the forward it last counted in
    std::int64_t calls = 0;
  };

  std::vector<Counter> counters;
  std::uint64_t last_forward = 0;
  std::uint64_t outermost = 0;  // the forward of the outermost hooked module
  int depth = 0;

  Counter& counter(const Hook& hook) {
    if (hook.counter >= counters.size()) counters.resize(hook.counter + 1);
    Counter& counter = counters[hook.counter];
    if (counter.serial != hook.serial) counter = Counter{hook.serial, 0, 0};
    return counter;
  }
};

namespace {

ThreadState& thread_state() {
  // A plain pointer in front: looking whether an object was made yet costs a call each time.
  static thread_local ThreadState* known = nullptr;
  if (known == nullptr) {
    static thread_local ThreadState state;
    known = &state;
  }
  return *known;
}

/// Small numbers for hooks, so that each thread finds its counters by index.
struct CounterPlaces {
  std::mutex mutex;
  std::vector<std::size_t> free;
  std::size_t used = 0;
  std::uint64_t serial = 0;

  static CounterPlaces& instance() {
    static auto* places = new CounterPlaces;  // hooks may outlive static objects
    return *places;
  }
};

std::int64_t next_call_index(ThreadState& state, const Hook& hook) {
  const std::uint64_t forward = hook.scope ? state.counter(*hook.scope).forward : state.outermost;
  ThreadState::Counter& counter = state.counter(hook);
  if (counter.forward != forward) {
    counter.forward = forward;
    counter.calls = 0;
  }
  return counter.calls++;
}

/// What is to happen when one gradient arrives. The graph does not keep alive what a removed hook held.
struct GradientHooks {
  struct One {
    std::weak_ptr<Hook> hook;
    std::int64_t call_index;
  };
  std::vector<One> hooks;
  std::int64_t slot;

  void fire(at::Tensor& gradient) const {
    for (const auto& one : hooks) {
      const auto hook = one.hook.lock();
      if (hook == nullptr || !hook->active.load()) continue;
      Event event(hook->kind, hook->path, hook->type, one.call_index);
      event.set_gradient(&gradient, slot);
      hook->callback(event);
    }
  }
};

/// Sits on the node that made a tensor. Unlike Tensor::register_hook it keeps to this version of the tensor
/// when the tensor is changed in place later.
class NodeHook final : public torch::autograd::FunctionPreHook {
 public:
  NodeHook(GradientHooks hooks, std::uint32_t output) : hooks_(std::move(hooks)), output_(output) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    torch::autograd::variable_list result = gradients;
    if (output_ < result.size() && result[output_].defined()) hooks_.fire(result[output_]);
    return result;
  }

 private:
  GradientHooks hooks_;
  std::uint32_t output_;
};

void add_node_hook(Node& node, GradientHooks hooks, std::uint32_t output) {
  auto hook = std::make_unique<NodeHook>(std::move(hooks), output);
#if TORCH_VERSION_MAJOR >= 2
  node.add_tensor_pre_hook(
      std::move(hook));  // also runs where the node itself is not needed, as tensor hooks do
#else
  node.add_pre_hook(std::move(hook));
#endif
}

/// Sits on the node by which autograd records an in-place change of a view: what leaves it towards the base
/// is the gradient with respect to the tensor as it was before.
class InplaceHook final : public torch::autograd::FunctionPostHook {
 public:
  InplaceHook(GradientHooks hooks, const at::Tensor& input, const at::Tensor& base)
      : hooks_(std::move(hooks)),
        whole_(!input.is_view()),
        sizes_(input.sizes().vec()),
        strides_(input.strides().vec()),
        offset_(input.storage_offset() - base.storage_offset()) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    torch::autograd::variable_list result = outputs;
    if (result.empty() || !result[0].defined()) return result;
    if (whole_) {
      hooks_.fire(result[0]);
      return result;
    }
    at::Tensor part = result[0].as_strided(sizes_, strides_, result[0].storage_offset() + offset_);
    const at::Tensor before = part;
    hooks_.fire(part);
    if (!part.is_same(before)) {
      result[0] = result[0].clone();
      result[0].as_strided(sizes_, strides_, offset_).copy_(part);
    }
    return result;
  }

 private:
  GradientHooks hooks_;
  bool whole_;
  std::vector<std::int64_t> sizes_, strides_;
  std::int64_t offset_;
};

GradientHooks select(const Plan& plan, std::size_t begin, std::size_t end,
                     c10::ArrayRef<std::int64_t> indices, std::int64_t slot) {
  GradientHooks selected{{}, slot};
  for (std::size_t i = begin; i < end; ++i) selected.hooks.push_back({plan.hooks[i], indices[i]});
  return selected;
}

at::Tensor base_of(const at::Tensor& tensor) {
  return tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
}

int rank(const Hook& hook) {
  if (hook.is_scope) return 0;
  switch (hook.kind) {
    case Kind::forward_pre:
      return 1;
    case Kind::forward:
    case Kind::forward_output:
      return 2;
    case Kind::backward_input:
      return 3;
    case Kind::backward_output:
      return 4;
  }
  return 4;
}

}  // namespace

Hook::Hook() {
  CounterPlaces& places = CounterPlaces::instance();
  const std::lock_guard lock(places.mutex);
  serial = ++places.serial;
  if (places.free.empty()) {
    counter = places.used++;
  } else {
    counter = places.free.back();
    places.free.pop_back();
  }
}

Hook::~Hook() {
  CounterPlaces& places = CounterPlaces::instance();
  const std::lock_guard lock(places.mutex);
  places.free.push_back(counter);
}

ScopeHold::~ScopeHold() {
  Registry::instance().detach(*hook);
}

Plan::Plan(const std::vector<std::shared_ptr<Hook>>& attached) : hooks(attached) {
  std::stable_sort(hooks.begin(), hooks.end(),
                   [](const auto& a, const auto& b) { return rank(*a) < rank(*b); });
  const auto count = [&](int most) {
    return static_cast<std::size_t>(
        std::count_if(hooks.begin(), hooks.end(), [&](const auto& hook) { return rank(*hook) <= most; }));
  };
  forward_pre_begin = count(0);
  forward_pre_end = count(1);
  forward_end = count(2);
  backward_input_end = count(3);
  sees_inputs = has_backward_input() || has_backward_output() ||
                std::any_of(hooks.begin(), hooks.end(),
                            [](const auto& hook) { return !hook->is_scope && hook->kind == Kind::forward; });
  wants_inputs = forward_pre_begin != forward_pre_end || sees_inputs;
  wants_outputs = forward_end != forward_pre_end || has_backward_input() || has_backward_output();
}

Call::Call(core::Gate& gate) : gate_(&gate) {
  gate.readers.fetch_add(1);
  plan_ = gate.plan.load();
  if (plan_ == nullptr) return;
  state_ = &thread_state();
  if (state_->depth++ == 0) state_->outermost = ++state_->last_forward;
  for (std::size_t i = 0; i < plan_->forward_pre_begin; ++i) {
    state_->counter(*plan_->hooks[i]).forward = ++state_->last_forward;
  }
  for (const auto& hook : plan_->hooks) {
    indices_.push_back(hook->is_scope || hook->on_root ? 0 : next_call_index(*state_, *hook));
  }
}

Call::~Call() {
  if (state_ != nullptr) end();
  if (gate_ != nullptr) leave();
}

void Call::end() noexcept {
  --state_->depth;
}

void Call::leave() noexcept {
  if (gate_->readers.fetch_sub(1) == 1 && Registry::instance().pending.load()) Registry::instance().left();
}

void Call::own_plan() {
  if (plan_ != nullptr) {
    owned_ = plan_->shared_from_this();
    end();
    state_ = nullptr;
  }
  leave();
  gate_ = nullptr;
}

void Call::fire(std::size_t begin, std::size_t end, Tensors* inputs, Tensors* outputs) {
  for (std::size_t i = begin; i < end; ++i) {
    const Hook& hook = *plan_->hooks[i];
    if (!hook.active.load(std::memory_order_relaxed)) continue;
    Event event(hook.kind, hook.path, hook.type, indices_[i]);
    event.set_forward(hook.kind == Kind::forward_output ? nullptr : inputs, outputs);
    hook.callback(event);
  }
}

void Call::before(Tensors& inputs) {
  if (plan_->forward_pre_end != plan_->forward_pre_begin) {
    fire(plan_->forward_pre_begin, plan_->forward_pre_end, &inputs, nullptr);
    inputs.check_absent("inputs");
  }
  if (!plan_->sees_inputs) return;
  if (plan_->has_backward_input()) {
    alias_inputs(inputs);
    return;
  }
  for (std::int64_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    Input kept;
    kept.tensor = input;
    if (input.defined() && plan_->has_backward_output()) kept.node = input.grad_fn();
    inputs_.push_back(std::move(kept));
  }
}

void Call::after(Tensors& outputs) {
  if (plan_->has_backward_input()) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) follow_inplace(inputs_[i], static_cast<std::int64_t>(i));
  }
  if (plan_->forward_end != plan_->forward_pre_end) {
    Tensors inputs;
    for (auto& input : inputs_) inputs.push_back(input.tensor);
    fire(plan_->forward_pre_end, plan_->forward_end, &inputs, &outputs);
    outputs.check_absent("outputs");
  }
  if (plan_->has_backward_output() && at::GradMode::is_enabled()) hook_outputs(outputs);
}

// The module gets an alias of its own, so that the alias's gradient is what flowed through this module and
// not what flowed through other uses of the same tensor. A view, not a custom function: whatever the module
// then does in place is recorded by autograd as it would be without us.
void Call::alias_inputs(Tensors& inputs) {
  for (std::int64_t i = 0; i < inputs.size(); ++i) {
    at::Tensor& input = inputs[i];
    if (!input.defined() || !input.requires_grad() || !at::GradMode::is_enabled()) {
      Input kept;
      kept.tensor = input;
      inputs_.push_back(std::move(kept));
      continue;
    }
    const Hook& first = *plan_->hooks[plan_->forward_end];
    TORCH_CHECK_NOT_IMPLEMENTED(
        input.layout() == c10::kStrided, "BackwardInput: input ", i, " of \"", first.path, "\" (", first.type,
        ") has layout ", input.layout(),
        ", of which no alias can be taken; record BackwardOutput of the module before it.");
    Input kept;
    kept.tensor = input.view_as(input);
    kept.original = input;
    kept.node = kept.tensor.grad_fn();
    kept.base_node = base_of(input).grad_fn();
    add_node_hook(*kept.node, select(*plan_, plan_->forward_end, plan_->backward_input_end, indices_, i),
                  static_cast<std::uint32_t>(kept.tensor.output_nr()));
    input = kept.tensor;
    inputs_.push_back(std::move(kept));
  }
}

// A module that changed its input in place has cut the alias's first version out of the graph: autograd leads
// the gradient around it, through the node that records the change on the base.
void Call::follow_inplace(const Input& input, std::int64_t slot) {
  if (!input.original.defined() || input.tensor.grad_fn() == input.node) return;
  const Hook& first = *plan_->hooks[plan_->forward_end];
  const at::Tensor base = base_of(input.original);
  Node* node = base.grad_fn().get();
  for (int steps = 0; node != nullptr && steps < 64; ++steps) {
    NodePtr next;
    if (node->num_outputs() > 0) next = node->next_edge(0).function;
    if (next == input.base_node) break;
    node = next.get();
  }
  // Besides us, only the recorded in-place operation itself knows the node of the alias's first version.
  TORCH_CHECK_NOT_IMPLEMENTED(node != nullptr && input.node.use_count() <= 2, "BackwardInput: \"", first.path,
                              "\" (", first.type, ") changes its input ", slot,
                              " in place and uses it otherwise too, so the gradient through this module "
                              "cannot be told apart; make the "
                              "operation out of place, or record BackwardOutput of the module before it.");
  node->add_post_hook(std::make_unique<InplaceHook>(
      select(*plan_, plan_->forward_end, plan_->backward_input_end, indices_, slot), input.original, base));
}

bool Call::entered_as_is(const at::Tensor& output) const {
  return std::any_of(inputs_.begin(), inputs_.end(), [&](const Input& input) {
    return input.tensor.defined() && input.tensor.is_same(output) && output.grad_fn() == input.node;
  });
}

void Call::hook_outputs(Tensors& outputs) {
  for (std::int64_t i = 0; i < outputs.size(); ++i) {
    at::Tensor& output = outputs[i];
    if (!output.defined() || !output.requires_grad()) continue;
    bool repeated = false;
    for (std::int64_t j = 0; j < i; ++j) repeated = repeated || outputs[j].is_same(output);
    // A tensor that the module only passed on (Identity, Dropout in eval mode) has gradients from elsewhere,
    // too.
    if (output.is_leaf() || repeated || entered_as_is(output)) output = output.view_as(output);
    add_node_hook(*output.grad_fn(),
                  select(*plan_, plan_->backward_input_end, plan_->hooks.size(), indices_, i),
                  static_cast<std::uint32_t>(output.output_nr()));
  }
}

}  // namespace torchtap::hooks::detail
