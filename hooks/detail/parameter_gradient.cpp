// Puts hooks into LibTorch's own list of a tensor's hooks, the only place where all uses have been summed and
// nothing was added to `grad()` yet. A hook of the tensor's accumulator would have to keep that alive, would
// be lost when the tensor moves to another device, and would make LibTorch copy the gradient.

#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/detail/parameter_gradient.hpp>

namespace torchtap::hooks::detail {
namespace {

/// How many hooks of leaves this thread is in: their lists must keep their length then.
int& running() noexcept {
  static thread_local int depth = 0;
  return depth;
}

/// An entry of LibTorch's list.
struct LeafHook {
  std::shared_ptr<Hook> hook;

  at::TensorBase operator()(const at::TensorBase& given) const {
    const std::shared_ptr<Hook> kept = hook;  // the callback may remove this entry
    if (!kept->active.load()) return {};
    at::Tensor gradient(given);
    CallEvent event(kept->kind, kept->path, kept->type, 0);
    event.set_gradient(&gradient, 0);
    struct Running {
      Running() { ++running(); }
      ~Running() { --running(); }
    } const inside;
    kept->callback(event);
    check_given(*kept, gradient);
    return gradient.is_same(given) ? at::TensorBase() : at::TensorBase(gradient);
  }
};

}  // namespace

void attach_to_leaf(const at::Tensor& leaf, const std::shared_ptr<Hook>& hook) {
  torch::autograd::AutogradMeta& meta = *torch::autograd::impl::materialize_autograd_meta(leaf);
  if (meta.cpp_hooks_list_ == nullptr) {
    TORCH_CHECK_NOT_IMPLEMENTED(meta.hooks_.empty(), "hooks::attach: Python's hooks are on \"", hook->path,
                                "\", and LibTorch drops them where C++ puts the first of its own; attach "
                                "before Python does, or remove those.");
    // Unlike at::Tensor::register_hook, for a parameter that is frozen now, too.
    torch::autograd::impl::create_cpp_hook(leaf);
  }
  meta.cpp_hooks_list_->push_back(LeafHook{hook});
  hook->leaf.emplace(leaf.getIntrusivePtr());
}

void detach_from_leaf(Hook& hook) noexcept {
  hook.active.store(false);
  const auto tensor = hook.leaf->lock();
  if (!tensor.defined()) return;
  torch::autograd::AutogradMeta* meta = torch::autograd::impl::get_autograd_meta(at::Tensor(tensor));
  if (meta == nullptr || meta->cpp_hooks_list_ == nullptr) return;
  auto& list = *meta->cpp_hooks_list_;
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& entry) {
    const auto* ours = entry.template target<LeafHook>();
    return ours != nullptr && ours->hook.get() == &hook;
  });
  if (found == list.end()) return;
  *found = nullptr;  // as at::Tensor::remove_hook, so that the places of others stay
  if (running() != 0) return;
  while (!list.empty() && list.back() == nullptr) list.pop_back();
  if (!list.empty() || meta->hooks_.size() != 1) return;
  meta->hooks_.clear();
  meta->cpp_hooks_list_.reset();
}

}  // namespace torchtap::hooks::detail
