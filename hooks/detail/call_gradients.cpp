// Aliases the inputs of a call, and puts the hooks of gradients on the nodes of inputs and outputs.

#include <ATen/core/grad_mode.h>
#include <c10/macros/Macros.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <mutex>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/expose.hpp>
#include <torchtap/hooks/detail/call.hpp>
#include <torchtap/hooks/detail/call_gradients.hpp>

namespace torchtap::base {

struct NodeMutex {
  friend auto exposed(NodeMutex);
};
template struct Expose<NodeMutex, &torch::autograd::Node::mutex_>;

}  // namespace torchtap::base

namespace torchtap::hooks::detail {
namespace {

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

}  // namespace

// Apart from calls without gradients.
C10_NOINLINE CallGradients::CallGradients(Call& call) noexcept : call_(call), plan_(call.plan()) {}
C10_NOINLINE CallGradients::~CallGradients() = default;

GradientHooks CallGradients::hooks_of(std::size_t begin, std::size_t end, std::int64_t slot) const {
  GradientHooks selected;
  selected.slot = slot;
  for (std::size_t i = begin; i < end; ++i) selected.hooks.push_back({plan_.hooks[i], call_.index_of(i)});
  return selected;
}

GradientHooks CallGradients::input_hooks(std::int64_t slot) const {
  return hooks_of(plan_.forward_end, plan_.backward_input_end, slot);
}

void CallGradients::leave_out(std::size_t begin, std::size_t end, std::int64_t slot, const std::string& why) {
  call_.run_hooks([&] {
    for (std::size_t i = begin; i < end; ++i) {
      const Hook& hook = *plan_.hooks[i];
      if (hook.left_out == nullptr || !hook.active.load(std::memory_order_relaxed)) continue;
      CallEvent event(hook.kind, hook.path, hook.type, call_.index_of(i));
      event.set_gradient(nullptr, slot);
      hook.left_out(event, why);
    }
  });
}

void CallGradients::leave_out_input(std::int64_t slot, const std::string& why) {
  leave_out(plan_.forward_end, plan_.backward_input_end, slot, why);
}

void CallGradients::alias_inputs(CallTensors& inputs) {
  for (std::int64_t i = 0; i < inputs.size(); ++i) {
    at::Tensor& input = inputs[i];
    const bool flows = input.defined() && input.requires_grad() && at::GradMode::is_enabled();
    const bool has_views = flows && input.layout() == c10::kStrided && !input.is_nested();
    inputs_.push_back(has_views ? alias_of(input, i) : Input());
    if (has_views) {
      input = inputs_.back().tensor;
    } else if (flows) {
      leave_out_input(i, c10::str("input ", i, " is ",
                                  input.is_nested() ? "nested" : c10::str("of layout ", input.layout()),
                                  ", and LibTorch has no views of such tensors; record BackwardOutput of "
                                  "the module before it."));
    }
  }
}

CallGradients::Input CallGradients::alias_of(const at::Tensor& input, std::int64_t slot) const {
  Input kept;
  kept.original = input;
  kept.tensor = unseen([&] { return input.view_as(input); });
  kept.node = kept.tensor.grad_fn();
  const at::Tensor base = base_of(input);
  kept.base_node = base.grad_fn();
  kept.base_output = static_cast<std::uint32_t>(base.output_nr());
  auto hook =
      std::make_unique<NodeHook>(input_hooks(slot), static_cast<std::uint32_t>(kept.tensor.output_nr()));
  kept.hook = hook.get();
  add_pre_hook(*kept.node, std::move(hook));
  if (input.is_leaf()) {
    kept.gradient = accumulated(input);
    torch::autograd::impl::get_autograd_meta(kept.tensor)->grad_ = kept.gradient;
  }
  return kept;
}

bool CallGradients::take_back_aliases(CallTensors& inputs, const std::string& why) {
  const auto [begin, end] = inputs.refused();
  bool any = false;
  for (std::int64_t i = begin; i < end; ++i) {
    Input& input = inputs_[static_cast<std::size_t>(i)];
    if (!input.original.defined() || !inputs[i].is_same(input.tensor)) continue;
    any = true;
    inputs[i] = input.original;
    input = Input();
    leave_out_input(i, c10::str("the module has to get a view of input ", i, ". ", why));
  }
  return any;
}

C10_NOINLINE void CallGradients::end_inputs() {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].original.defined()) continue;
    follow_inplace(inputs_[i], static_cast<std::int64_t>(i));
    carry_over(inputs_[i]);
  }
}

// Hooks, `retain_grad`, data and gradient that the module set on the alias itself go to the caller's tensor.
void CallGradients::carry_over(const Input& input) {
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
void CallGradients::follow_inplace(const Input& input, std::int64_t slot) {
  if (input.tensor.grad_fn() == input.node) return;
  const at::Tensor base = base_of(input.original);
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
    auto hook =
        std::make_unique<NodeHook>(input_hooks(slot), static_cast<std::uint32_t>(input.tensor.output_nr()));
    if (whole != nullptr) hook->be_half_of(whole, Halves::changed);
    add_pre_hook(*input.tensor.grad_fn(), std::move(hook));
  } else {
    node->add_post_hook(std::make_unique<InplaceHook>(input_hooks(slot), Part(input.original, base), whole));
  }
  if (whole != nullptr) {
    add_pre_hook_first(
        *input.base_node,
        std::make_unique<WholeHook>(input_hooks(slot), Part(input.original, base), input.base_output, whole));
  }
}

C10_NOINLINE void CallGradients::hook_outputs(const CallTensors& outputs) {
  const std::size_t begin = plan_.backward_input_end, end = plan_.hooks.size();
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
    const GradientHooks hooks = hooks_of(begin, end, i);
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

}  // namespace torchtap::hooks::detail
