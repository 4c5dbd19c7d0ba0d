#include "leaf.hpp"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "binding.hpp"
#include "callable.hpp"
#include "found_tensors.hpp"

namespace torchtap::python {
namespace {

torch::autograd::hooks_list hooks_of(const at::Tensor& leaf) {
  const auto* const meta = torch::autograd::impl::get_autograd_meta(leaf);
  if (meta == nullptr || meta->cpp_hooks_list_ == nullptr) return {};
  return *meta->cpp_hooks_list_;
}

}  // namespace

Leaf::Leaf(const at::Tensor& parameter)
    : parameter_(parameter.getIntrusivePtr()), leaf_(at::empty({0}, parameter.scalar_type())) {
  follow();
}

void Leaf::hand_over(const at::Tensor& gradient) const {
  FoundTensors found;
  found.add(gradient);
  if (!found.computed()) return;
  unlocked([&] {
    const Hidden unseen(/*python_too=*/found.plain());
    for (const auto& hook : hooks_of(leaf_)) {
      if (hook) hook(gradient);
    }
  });
}

void Leaf::follow() const {
  const at::Tensor parameter(parameter_.lock());
  if (parameter.defined()) leaf_.set_requires_grad(parameter.requires_grad());
}

bool Leaf::idle() const {
  const auto hooks = hooks_of(leaf_);
  return std::none_of(hooks.begin(), hooks.end(), [](const auto& hook) { return hook != nullptr; });
}

}  // namespace torchtap::python
