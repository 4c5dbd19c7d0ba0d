// Runs hooks around one call of a module, counts calls per forward, and reports gradients to hooks.

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/macros/Macros.h>
#include <pthread.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include <torchtap/base/error.hpp>
#include <torchtap/base/expose.hpp>
#include <torchtap/base/of_thread.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/hooks/detail/call.hpp>
#include <torchtap/hooks/detail/one_side.hpp>
#include <torchtap/hooks/detail/readers.hpp>
#include <torchtap/hooks/detail/registry.hpp>
#include <torchtap/hooks/extend/call_depth.hpp>
#include <torchtap/hooks/forward.hpp>
#include <torchtap/model/extend/node.hpp>

namespace torchtap::base {

struct NodeMutex {
  friend auto exposed(NodeMutex);
};
template struct Expose<NodeMutex, &torch::autograd::Node::mutex_>;

}  // namespace torchtap::base

namespace torchtap::hooks::detail {

using torch::autograd::Node;

/// The forwards that a thread is in, and its counters of calls.
struct ThreadState {
  struct Counter {
    std::uint64_t serial = 0;  // of the hook that owns this counter
    std::uint64_t forward =
        0;  // for a scope, its current forward; for other hooks, the forward of the last counted call
    std::int64_t calls = 0;
  };

  Readers readers;
  std::vector<Counter> counters;
  std::uint64_t last_forward = 0;
  std::uint64_t outermost = 0;  // the current forward of the outermost hooked module
  int depth = 0;
  Call* innermost = nullptr;
  std::vector<std::function<void()>> ending;  // called when `depth` is 0 again

  C10_NOINLINE void run_ending() {
    for (const auto& function : std::exchange(ending, {})) function();
  }

  Counter& counter(const Hook& hook) {
    if (hook.counter >= counters.size()) counters.resize(hook.counter + 1);
    Counter& counter = counters[hook.counter];
    if (counter.serial != hook.serial) counter = Counter{hook.serial, 0, 0};
    return counter;
  }
};

namespace {

ThreadState& thread_state() {
  return base::of_thread<ThreadState>();
}

/// Gives each hook a small number, its index into every thread's counters.
struct CounterPlaces {
  std::mutex mutex;
  std::vector<std::size_t> free;
  std::size_t used = 0;
  std::uint64_t serial = 0;

  static CounterPlaces& instance() {
    static auto* places = make();  // hooks may outlive static objects
    return *places;
  }

 private:
  // Locked across fork(): otherwise a child could inherit a mutex that another thread held.
  static CounterPlaces* make() {
    ::pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                     [] { instance().mutex.unlock(); });
    return new CounterPlaces;
  }
};

/// A thread that has not entered the root's forward (a TorchScript fork, say) counts by its outermost hooked
/// module.
std::uint64_t forward_of(ThreadState& state, const std::shared_ptr<Hook>& scope) {
  const std::uint64_t forward = scope ? state.counter(*scope).forward : 0;
  return forward != 0 ? forward : state.outermost;
}

std::int64_t next_call_index(ThreadState& state, const Hook& hook) {
  const std::uint64_t forward = forward_of(state, hook.scope);
  ThreadState::Counter& counter = state.counter(hook);
  if (counter.forward != forward) {
    counter.forward = forward;
    counter.calls = 0;
  }
  return counter.calls++;
}

/// Throws if a hook took the gradient away.
void check_given(const Hook& hook, const at::Tensor& gradient) {
  TORCH_CHECK_VALUE(gradient.defined(), "hooks: a hook of \"", hook.path, "\" (", hook.type,
                    ") replaced the gradient by an undefined tensor; assign zeros instead.");
}

/// Whether one of the tensors is not there.
C10_ALWAYS_INLINE bool lacks_one(const CallTensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) return true;
  }
  return false;
}

[[noreturn]] C10_NOINLINE void refuse_undefined(const Plan& plan, const char* where) {
  const Hook& hook = *plan.hooks.back();
  TORCH_CHECK_VALUE(false, "hooks: a hook of \"", hook.path, "\" (", hook.type, ") replaced a tensor of the ",
                    where, " by an undefined one; assign a tensor, say zeros.");
}

/// The hooks to call when one gradient arrives. Weak, so that the graph does not keep removed hooks alive.
struct GradientHooks {
  struct One {
    std::weak_ptr<Hook> hook;
    std::int64_t call_index;
  };
  std::vector<One> hooks;
  std::int64_t slot = 0;
  std::shared_ptr<const core::Context::Names> names = core::Context::here();  // of the forward

  void fire(at::Tensor& gradient) const {
    const core::Context of_forward(names);
    for (const auto& one : hooks) {
      const auto hook = one.hook.lock();
      if (hook == nullptr || !hook->active.load()) continue;
      CallEvent event(hook->kind, hook->path, hook->type, one.call_index);
      event.set_gradient(&gradient, slot);
      hook->callback(event);
      check_given(*hook, gradient);
    }
  }
};

/// Set once a gradient was reported at its own node, so that the base's node does not report it again.
using Reported = std::shared_ptr<std::atomic<bool>>;

/// Calls `function` such that scopes of operations/ do not see its operations.
template <class Function>
decltype(auto) unseen(Function&& function) {
  const c10::impl::ExcludeDispatchKeyGuard guard(base::operations_key);
  return function();
}

/// The gradient of an input that a module used before it changed it in place: what comes through those uses,
/// and what comes through the change. Both go on to the node that made the tensor, which runs after them.
class Halves {
 public:
  enum Half { before, changed };

  void put(Half half, const at::Tensor& gradient) {
    const std::lock_guard lock(mutex_);
    if (halves_[half].defined()) halves_ = {};  // of a backward that did not get to the end
    // A copy: LibTorch adds to gradients in place if nobody else has them.
    halves_[half] = unseen([&] { return gradient.clone(); });
  }
  /// Their sum, which is forgotten; undefined if nothing came.
  at::Tensor take() {
    const std::lock_guard lock(mutex_);
    const auto halves = std::exchange(halves_, {});
    if (!halves[before].defined() || !halves[changed].defined()) {
      return halves[before].defined() ? halves[before] : halves[changed];
    }
    return unseen([&] { return halves[before] + halves[changed]; });
  }

 private:
  std::mutex mutex_;
  std::array<at::Tensor, 2> halves_;
};

/// The hooks of modules' tensors, among other hooks of a node.
struct OfModule : torch::autograd::FunctionPreHook {};

/// Attached to the node that made a tensor. Unlike Tensor::register_hook it stays with this version of the
/// tensor when the tensor is later changed in place.
class NodeHook final : public OfModule {
 public:
  NodeHook(GradientHooks hooks, std::uint32_t output, Reported reported = nullptr)
      : hooks_(std::move(hooks)), output_(output), reported_(std::move(reported)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    torch::autograd::variable_list result = gradients;
    if (output_ >= result.size() || !result[output_].defined()) return result;
    if (reported_ != nullptr) reported_->store(true);
    if (whole_ != nullptr) {
      whole_->put(half_, result[output_]);
    } else {
      hooks_.fire(result[output_]);
    }
    return result;
  }
  /// From now on what arrives is a half of `whole`.
  void be_half_of(std::shared_ptr<Halves> whole, Halves::Half half) {
    whole_ = std::move(whole);
    half_ = half;
  }

 private:
  GradientHooks hooks_;
  std::uint32_t output_;
  Reported reported_;
  std::shared_ptr<Halves> whole_;
  Halves::Half half_ = Halves::before;
};

void add_pre_hook(Node& node, std::unique_ptr<torch::autograd::FunctionPreHook> hook) {
#if TORCH_VERSION_MAJOR >= 2
  // Runs even where the node itself is not executed, as tensor hooks do.
  node.add_tensor_pre_hook(std::move(hook));
#else
  node.add_pre_hook(std::move(hook));
#endif
}

std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>& pre_hooks_of(Node& node) {
#if TORCH_VERSION_MAJOR >= 2
  return node.tensor_pre_hooks();
#else
  return node.pre_hooks();
#endif
}

/// Adds the hook before those of outputs and inputs that are there: the tensor went through their modules
/// first, so its gradient comes to this one first.
void add_pre_hook_first(Node& node, std::unique_ptr<torch::autograd::FunctionPreHook> hook) {
  add_pre_hook(node, std::move(hook));
  auto& all = pre_hooks_of(node);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& other) {
    return dynamic_cast<const OfModule*>(other.get()) != nullptr;
  });
  std::rotate(first, all.end() - 1, all.end());
}

at::Tensor base_of(const at::Tensor& tensor) {
  return tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
}

/// The gradient that a leaf has accumulated, read as its accumulator writes it: under the accumulator's lock.
at::Tensor accumulated(const at::Tensor& leaf) {
  const NodePtr accumulator = torch::autograd::impl::try_get_grad_accumulator(leaf);
  std::unique_lock<std::mutex> lock;
  if (accumulator != nullptr) lock = std::unique_lock((*accumulator).*exposed(base::NodeMutex{}));
  return torch::autograd::impl::get_autograd_meta(leaf)->grad_;
}

bool same_geometry(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

/// The position of a view in its base, to find the view's part of the base's gradient.
class Part {
 public:
  Part(const at::Tensor& view, const at::Tensor& base)
      : sizes_(view.sizes().vec()),
        strides_(view.strides().vec()),
        base_sizes_(base.sizes().vec()),
        base_strides_(base.strides().vec()),
        offset_(view.storage_offset() - base.storage_offset()),
        whole_(offset_ == 0 && sizes_ == base_sizes_ && strides_ == base_strides_) {}

  /// Whether geometry alone describes the view: same dtype, conjugate bit and negative bit as the base.
  static bool describes(const at::Tensor& view, const at::Tensor& base) {
    return view.layout() == c10::kStrided && view.scalar_type() == base.scalar_type() &&
           view.is_conj() == base.is_conj() && view.is_neg() == base.is_neg();
  }

  /// The view's part of the base's gradient.
  at::Tensor of(const at::Tensor& gradient) const {
    if (whole_) return gradient;
    return unseen([&] {
      const bool fits = gradient.strides() == at::IntArrayRef(base_strides_);
      const at::Tensor all = fits ? gradient : laid_out_as_base(gradient);
      return all.as_strided(sizes_, strides_, all.storage_offset() + offset_);
    });
  }
  /// The base's gradient with another part.
  at::Tensor with(const at::Tensor& gradient, const at::Tensor& part) const {
    if (whole_) return part;
    return unseen([&] {
      at::Tensor all = laid_out_as_base(gradient);
      all.as_strided(sizes_, strides_, offset_).copy_(part);
      return all;
    });
  }
  void fire(const GradientHooks& hooks, at::Tensor& gradient) const {
    at::Tensor part = of(gradient);
    const at::Tensor before = part;
    hooks.fire(part);
    if (!part.is_same(before)) gradient = with(gradient, part);
  }

 private:
  at::Tensor laid_out_as_base(const at::Tensor& gradient) const {
    return at::empty_strided(base_sizes_, base_strides_, gradient.options()).copy_(gradient);
  }

  std::vector<std::int64_t> sizes_, strides_, base_sizes_, base_strides_;
  std::int64_t offset_;
  bool whole_;
};

/// Attached to the node that made the base of a view. Autograd records an in-place change of a view on its
/// base and recreates the view, so nothing flows through the node of the view's previous version. The
/// gradient that arrives here is then that version's, provided that nothing else leads here (see lone_base).
class BaseHook final : public OfModule {
 public:
  BaseHook(GradientHooks hooks, const at::Tensor& view, const at::Tensor& base, Reported reported)
      : hooks_(std::move(hooks)),
        part_(view, base),
        output_(static_cast<std::uint32_t>(base.output_nr())),
        reported_(std::move(reported)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    torch::autograd::variable_list result = gradients;
    if (reported_->exchange(false)) return result;
    if (output_ < result.size() && result[output_].defined()) part_.fire(hooks_, result[output_]);
    return result;
  }

 private:
  GradientHooks hooks_;
  Part part_;
  std::uint32_t output_;
  Reported reported_;
};

/// The base of a view if only the view uses it: nothing else holds the tensor, and only the views between
/// them lead to its node. All gradients of the base then flow through the view. Otherwise undefined.
at::Tensor lone_base(const at::Tensor& view) {
  if (!view.is_view()) return {};
  const at::Tensor base = base_of(view);
  const bool held_elsewhere = base.use_count() != 2;  // by the view and by `base`
  if (held_elsewhere || base.grad_fn() == nullptr || !Part::describes(view, base)) return {};
  if (view.grad_fn().use_count() != 1) return {};
  Node* node = view.grad_fn().get();
  for (int steps = 0; steps < 64 && node != nullptr && node->num_outputs() > 0; ++steps) {
    const NodePtr& next = node->next_edge(0).function;
    if (next == base.grad_fn()) return next.use_count() == 2 ? base : at::Tensor();
    if (next == nullptr || next.use_count() != 1) return {};
    node = next.get();
  }
  return {};
}

/// Attached to the node that records an in-place change of a view: its output towards the base is the
/// gradient with respect to the tensor before the change.
class InplaceHook final : public torch::autograd::FunctionPostHook {
 public:
  InplaceHook(GradientHooks hooks, Part part, std::shared_ptr<Halves> whole)
      : hooks_(std::move(hooks)), part_(std::move(part)), whole_(std::move(whole)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    torch::autograd::variable_list result = outputs;
    if (result.empty() || !result[0].defined()) return result;
    if (whole_ != nullptr) {
      whole_->put(Halves::changed, part_.of(result[0]));
    } else {
      part_.fire(hooks_, result[0]);
    }
    return result;
  }

 private:
  GradientHooks hooks_;
  Part part_;
  std::shared_ptr<Halves> whole_;  // null if the module did not use the input before
};

/// Attached to the node to which both halves go.
class WholeHook final : public OfModule {
 public:
  WholeHook(GradientHooks hooks, Part part, std::uint32_t output, std::shared_ptr<Halves> whole)
      : hooks_(std::move(hooks)), part_(std::move(part)), output_(output), whole_(std::move(whole)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    torch::autograd::variable_list result = gradients;
    const at::Tensor whole = whole_->take();
    if (!whole.defined() || output_ >= result.size() || !result[output_].defined()) return result;
    at::Tensor given = whole;
    hooks_.fire(given);
    if (given.is_same(whole)) return result;
    at::Tensor& all = result[output_];
    all = part_.with(all, unseen([&] { return part_.of(all) + (given - whole); }));
    return result;
  }

 private:
  GradientHooks hooks_;
  Part part_;
  std::uint32_t output_;
  std::shared_ptr<Halves> whole_;
};

GradientHooks select(const Plan& plan, std::size_t begin, std::size_t end,
                     c10::ArrayRef<std::int64_t> indices, std::int64_t slot) {
  GradientHooks selected;
  selected.slot = slot;
  for (std::size_t i = begin; i < end; ++i) selected.hooks.push_back({plan.hooks[i], indices[i]});
  return selected;
}

/// Names the module in the error about a tensor that cannot be replaced.
C10_ALWAYS_INLINE void put_back(CallTensors& tensors, CallTensors::Of of, const Plan& plan) {
  try {
    tensors.put_back(of);
  } catch (c10::Error& error) {
    const Hook& first = *plan.hooks.front();
    error.add_context(c10::str("In a call of \"", first.path, "\" (", first.type, ")"));
    throw;
  }
}

void leave(ThreadState& state, Gate& gate) noexcept {
  state.readers.leave(gate);
  if (Registry::instance().pending.load()) Registry::instance().left();
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
    case Kind::backward_parameter:  // of a tensor, and never in a plan
      return 4;
  }
  return 4;
}

}  // namespace

// Exported for libraries that torchtap loads into programs.
TORCHTAP_API Hook::Hook() {
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

TORCHTAP_API Hook::~Hook() {
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
  sees_inputs = has_backward_input() || std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
                  return !hook->is_scope && hook->kind == Kind::forward;
                });
  wants_inputs = forward_pre_begin != forward_pre_end || sees_inputs;
  wants_outputs = forward_end != forward_pre_end || has_backward_input() || has_backward_output();
}

Call::Call(Gate& gate) : gate_(&gate) {
  ThreadState& state = thread_state();
  state.readers.enter(gate);
  plan_ = gate.plan.load();
  if (plan_ == nullptr) return;
  state_ = &state;
  outer_ = std::exchange(state_->innermost, this);
  if (state_->depth++ == 0) state_->outermost = ++state_->last_forward;
  for (std::size_t i = 0; i < plan_->forward_pre_begin; ++i) {
    state_->counter(*plan_->hooks[i]).forward = ++state_->last_forward;
  }
  for (const auto& hook : plan_->hooks) {
    indices_.push_back(hook->is_scope || hook->on_root ? 0 : next_call_index(*state_, *hook));
  }
}

C10_ALWAYS_INLINE void Call::end() noexcept {
  if (state_->innermost == this) {
    state_->innermost = outer_;
  } else {  // fibers: the calls of several stacks end in any order
    Call* inner = state_->innermost;
    while (inner->outer_ != this) inner = inner->outer_;
    inner->outer_ = outer_;
  }
  if (--state_->depth == 0 && !state_->ending.empty()) state_->run_ending();
}

C10_ALWAYS_INLINE void Call::leave() noexcept {
  detail::leave(state_ != nullptr ? *state_ : thread_state(), *gate_);
}

Call::~Call() {
  if (state_ != nullptr) end();
  if (gate_ != nullptr) leave();
}

bool Call::is_inside(const void* module) noexcept {
  for (const Call* call = thread_state().innermost; call != nullptr; call = call->outer_) {
    if (!call->firing_ && call->plan_->hooks.front()->module == module) return true;
  }
  return false;
}

bool Call::hands_on(const void* module) noexcept {
  Call* call = thread_state().innermost;
  return call != nullptr && std::exchange(call->hands_on_, false) &&
         call->plan_->hooks.front()->module == module;
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

C10_ALWAYS_INLINE void Call::fire(std::size_t begin, std::size_t end, CallTensors* inputs,
                                  CallTensors* outputs) {
  const CallTensors& given = outputs != nullptr ? *outputs : *inputs;  // what hooks may replace
  const bool whole = !lacks_one(given);
  firing_ = true;
  for (std::size_t i = begin; i < end; ++i) {
    const Hook& hook = *plan_->hooks[i];
    if (!hook.active.load(std::memory_order_relaxed)) continue;
    CallEvent event(hook.kind, hook.path, hook.type, indices_[i]);
    event.set_forward(hook.kind == Kind::forward_output ? nullptr : inputs, outputs);
    hook.callback(event);
  }
  firing_ = false;
  if (C10_UNLIKELY(whole && lacks_one(given)))
    refuse_undefined(*plan_, outputs != nullptr ? "outputs" : "inputs");
}

void Call::leave_out(std::size_t begin, std::size_t end, std::int64_t slot, const std::string& why) {
  firing_ = true;
  for (std::size_t i = begin; i < end; ++i) {
    const Hook& hook = *plan_->hooks[i];
    if (hook.left_out == nullptr || !hook.active.load(std::memory_order_relaxed)) continue;
    CallEvent event(hook.kind, hook.path, hook.type, indices_[i]);
    event.set_gradient(nullptr, slot);
    hook.left_out(event, why);
  }
  firing_ = false;
}

void Call::before(CallTensors& inputs) {
  if (plan_->forward_pre_end != plan_->forward_pre_begin) {
    fire(plan_->forward_pre_begin, plan_->forward_pre_end, &inputs, nullptr);
  }
  if (plan_->has_backward_input()) {
    alias_inputs(inputs);
    put_back_inputs(inputs);
  } else {
    if (plan_->sees_inputs) keep_inputs(inputs);
    put_back(inputs, CallTensors::Of::inputs, *plan_);
  }
  if (inputs.has_unknown()) unknown_inputs_ = &inputs;
}

/// Aliases that an argument cannot take up are none of the program's mistakes: it gets its own tensors.
void Call::put_back_inputs(CallTensors& inputs) {
  for (;;) {
    try {
      return put_back(inputs, CallTensors::Of::inputs, *plan_);
    } catch (const c10::NotImplementedError& error) {
      if (!take_back_aliases(inputs, error.msg())) throw;
    }
  }
}

/// False if the tensors that cannot be replaced have no aliases.
bool Call::take_back_aliases(CallTensors& inputs, const std::string& why) {
  const auto [begin, end] = inputs.refused();
  bool any = false;
  for (std::int64_t i = begin; i < end; ++i) {
    Input& input = inputs_[static_cast<std::size_t>(i)];
    if (!input.original.defined() || !inputs[i].is_same(input.tensor)) continue;
    any = true;
    inputs[i] = input.original;
    input = Input();
    input.tensor = inputs[i];
    leave_out_input(i, c10::str("the module has to get a view of input ", i, ". ", why));
  }
  return any;
}

void Call::keep_inputs(CallTensors& inputs) {
  for (std::int64_t i = 0; i < inputs.size(); ++i) {
    inputs_.emplace_back().tensor = inputs[i];
  }
}

void Call::after(CallTensors& outputs) {
  if (plan_->has_backward_input()) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      follow_inplace(inputs_[i], static_cast<std::int64_t>(i));
      carry_over(inputs_[i]);
    }
  }
  if (plan_->forward_end != plan_->forward_pre_end) {
    CallTensors inputs;
    for (auto& input : inputs_) inputs.push_back(input.tensor);
    if (unknown_inputs_ != nullptr) inputs.push_unknown_of(*unknown_inputs_);
    fire(plan_->forward_pre_end, plan_->forward_end, &inputs, &outputs);
  }
  if (plan_->has_backward_output() && at::GradMode::is_enabled()) hook_outputs(outputs);
  put_back(outputs, CallTensors::Of::outputs, *plan_);
}

void Call::after(CallTensors& outputs, CallTensors& inputs) {
  inputs_.clear();
  if (plan_->sees_inputs) keep_inputs(inputs);
  after(outputs);
}

// Gives the module an alias of each input: the alias's gradient flowed through this module, without other
// uses of the same tensor. A view rather than a custom function, so that autograd records the module's
// in-place operations as it would without hooks.
void Call::alias_inputs(CallTensors& inputs) {
  for (std::int64_t i = 0; i < inputs.size(); ++i) {
    at::Tensor& input = inputs[i];
    const bool flows = input.defined() && input.requires_grad() && at::GradMode::is_enabled();
    const bool has_views = flows && input.layout() == c10::kStrided && !input.is_nested();
    if (!has_views) {
      inputs_.emplace_back().tensor = input;
      if (flows) {
        leave_out_input(i, c10::str("input ", i, " is ",
                                    input.is_nested() ? "nested" : c10::str("of layout ", input.layout()),
                                    ", and LibTorch has no views of such tensors; record BackwardOutput of "
                                    "the module before it."));
      }
      continue;
    }
    Input kept;
    kept.original = input;
    kept.tensor = unseen([&] { return input.view_as(input); });
    kept.node = kept.tensor.grad_fn();
    const at::Tensor base = base_of(input);
    kept.base_node = base.grad_fn();
    kept.base_output = static_cast<std::uint32_t>(base.output_nr());
    auto hook =
        std::make_unique<NodeHook>(select(*plan_, plan_->forward_end, plan_->backward_input_end, indices_, i),
                                   static_cast<std::uint32_t>(kept.tensor.output_nr()));
    kept.hook = hook.get();
    add_pre_hook(*kept.node, std::move(hook));
    if (input.is_leaf()) {
      kept.gradient = accumulated(input);
      torch::autograd::impl::get_autograd_meta(kept.tensor)->grad_ = kept.gradient;
    }
    input = kept.tensor;
    inputs_.push_back(std::move(kept));
  }
}

// Hooks, `retain_grad`, data and gradient that the module set on the alias itself go to the caller's tensor.
void Call::carry_over(const Input& input) {
  if (!input.original.defined()) return;
  torch::autograd::AutogradMeta& meta = *torch::autograd::impl::get_autograd_meta(input.tensor);
  if (meta.cpp_hooks_list_ != nullptr) {
    for (auto& hook : *meta.cpp_hooks_list_) {
      if (hook == nullptr) continue;
      static_cast<const at::TensorBase&>(input.original).register_hook(std::exchange(hook, nullptr));
    }
  }
  if (input.tensor.retains_grad()) input.original.retain_grad();
  if (input.tensor.layout() == c10::kStrided && !same_geometry(input.tensor, input.original)) {
    input.original.set_data(input.tensor.variable_data());
  }
  if (!meta.grad_.is_same(input.gradient)) input.original.mutable_grad() = meta.grad_;
  meta.grad_.reset();
}

// A module that changed its input in place has cut the alias's first version out of the graph: autograd
// routes the gradient through the node that records the change on the base. What the module computed before
// the change still flows through the first version.
void Call::follow_inplace(const Input& input, std::int64_t slot) {
  if (!input.original.defined() || input.tensor.grad_fn() == input.node) return;
  const at::Tensor base = base_of(input.original);
  const auto hooks = [&] {
    return select(*plan_, plan_->forward_end, plan_->backward_input_end, indices_, slot);
  };
  auto& first_version = static_cast<NodeHook&>(*input.hook);
  std::shared_ptr<Halves> whole;
  if (input.node.use_count() > 2) {  // by more than `input` and the recorded change
    whole = std::make_shared<Halves>();
    first_version.be_half_of(whole, Halves::before);
  }
  const bool under_no_grad = base.grad_fn() == input.base_node;  // the view was made anew
  Node* node = under_no_grad ? nullptr : base.grad_fn().get();
  for (int steps = 0; node != nullptr && steps < 64; ++steps) {
    NodePtr next;
    if (node->num_outputs() > 0) next = node->next_edge(0).function;
    if (next == input.base_node) break;
    node = next.get();
  }
  if ((node == nullptr && !under_no_grad) || (whole != nullptr && input.base_node == nullptr)) {
    // What the first version is given would be a part of the gradient only.
    first_version.be_half_of(std::make_shared<Halves>(), Halves::before);
    return leave_out_input(slot, c10::str("the module changes its input ", slot,
                                          " in place in a way that LibTorch does not record; make the "
                                          "operation out of place, or record BackwardOutput of the module "
                                          "before it."));
  }
  if (under_no_grad) {
    auto hook = std::make_unique<NodeHook>(hooks(), static_cast<std::uint32_t>(input.tensor.output_nr()));
    if (whole != nullptr) hook->be_half_of(whole, Halves::changed);
    add_pre_hook(*input.tensor.grad_fn(), std::move(hook));
  } else {
    node->add_post_hook(std::make_unique<InplaceHook>(hooks(), Part(input.original, base), whole));
  }
  if (whole != nullptr) {
    add_pre_hook_first(*input.base_node, std::make_unique<WholeHook>(hooks(), Part(input.original, base),
                                                                     input.base_output, whole));
  }
}

// An output stays what the module returned, also if that is its input or stands in two slots: the gradient is
// that of the tensor, with all its uses.
void Call::hook_outputs(const CallTensors& outputs) {
  const std::size_t begin = plan_->backward_input_end, end = plan_->hooks.size();
  for (std::int64_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& output = outputs[i];
    if (!output.defined() || !output.requires_grad()) continue;
    if (output.is_leaf()) {  // hooks of a leaf would outlive the graph of this forward
      leave_out(begin, end, i,
                c10::str("output ", i,
                         " is a leaf of the graph, such as a parameter or an input that the program made: "
                         "its grad() has the gradient, and BackwardParameter records those of parameters."));
      continue;
    }
    const GradientHooks hooks = select(*plan_, begin, end, indices_, i);
    Reported reported;
    if (const at::Tensor base = lone_base(output); base.defined()) {
      reported = std::make_shared<std::atomic<bool>>(false);
      add_pre_hook_first(*base.grad_fn(), std::make_unique<BaseHook>(hooks, output, base, reported));
    }
    add_pre_hook_first(
        *output.grad_fn(),
        std::make_unique<NodeHook>(hooks, static_cast<std::uint32_t>(output.output_nr()), reported));
  }
}

OneSide::OneSide(Gate& gate) : gate_(gate), state_(thread_state()) {
  state_.readers.enter(gate);
  plan_ = gate.plan.load();
}

OneSide::~OneSide() {
  detail::leave(state_, gate_);
}

void OneSide::before(CallTensors& inputs) {
  fire(plan_->forward_pre_begin, plan_->forward_pre_end, Kind::forward_pre, inputs);
  put_back(inputs, CallTensors::Of::inputs, *plan_);
}

void OneSide::after(CallTensors& outputs) {
  fire(plan_->forward_pre_end, plan_->forward_end, Kind::forward_output, outputs);
  put_back(outputs, CallTensors::Of::outputs, *plan_);
}

void OneSide::fire(std::size_t begin, std::size_t end, Kind kind, CallTensors& tensors) {
  ThreadState& state = state_;
  if (state.depth == 0) state.outermost = ++state.last_forward;
  if (kind == Kind::forward_pre) {
    for (std::size_t i = 0; i < plan_->forward_pre_begin; ++i) {
      state.counter(*plan_->hooks[i]).forward = ++state.last_forward;
    }
  }
  // Hooks of another kind may be attached while code runs that has the operators of one side only. They see
  // later forwards.
  const auto is_seen = [&](const Hook& hook) { return hook.kind == kind; };
  c10::SmallVector<std::int64_t, 4> indices;
  for (std::size_t i = begin; i < end; ++i) {
    const Hook& hook = *plan_->hooks[i];
    indices.push_back(hook.on_root || !is_seen(hook) ? 0 : next_call_index(state, hook));
  }
  const bool whole = !lacks_one(tensors);
  for (std::size_t i = begin; i < end; ++i) {
    const Hook& hook = *plan_->hooks[i];
    if (!is_seen(hook) || !hook.active.load(std::memory_order_relaxed)) continue;
    CallEvent event(kind, hook.path, hook.type, indices[i - begin]);
    event.set_forward(kind == Kind::forward_pre ? &tensors : nullptr,
                      kind == Kind::forward_pre ? nullptr : &tensors);
    hook.callback(event);
  }
  if (whole && lacks_one(tensors)) refuse_undefined(*plan_, kind == Kind::forward_pre ? "inputs" : "outputs");
}

}  // namespace torchtap::hooks::detail

namespace torchtap::hooks {

Forwards::Forwards(const model::ModuleRef& root)
    : ends_seen_(!root.scripted() && !root.exported() && model::extend::doors_of(root).sequence == nullptr),
      scope_(detail::Registry::instance().scope(root)) {}

std::uint64_t Forwards::current() const {
  return detail::forward_of(detail::thread_state(), scope_ == nullptr ? nullptr : scope_->hook);
}

bool Forwards::at_end(std::function<void()> function) const {
  auto& state = detail::thread_state();
  if (!ends_seen_ || state.depth == 0) return false;
  state.ending.push_back(std::move(function));
  return true;
}

}  // namespace torchtap::hooks

int torchtap::hooks::extend::call_depth() noexcept {
  return detail::thread_state().depth;
}
