// Puts hooks on autograd's nodes, and finds the base that only one view uses.

#include <torch/version.h>

#include <algorithm>

#include <torchtap/hooks/detail/node_hooks.hpp>

namespace torchtap::hooks::detail {
namespace {

std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>& pre_hooks_of(Node& node) {
#if TORCH_VERSION_MAJOR >= 2
  return node.tensor_pre_hooks();
#else
  return node.pre_hooks();
#endif
}

}  // namespace

void add_pre_hook(Node& node, std::unique_ptr<torch::autograd::FunctionPreHook> hook) {
#if TORCH_VERSION_MAJOR >= 2
  // Runs even where the node itself is not executed, as tensor hooks do.
  node.add_tensor_pre_hook(std::move(hook));
#else
  node.add_pre_hook(std::move(hook));
#endif
}

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

}  // namespace torchtap::hooks::detail
