#pragma once

/// Puts hooks on leaves of the autograd graph, such as parameters.

#include <ATen/core/Tensor.h>

#include <memory>

#include <torchtap/hooks/detail/hook.hpp>

namespace torchtap::hooks::detail {

/// Puts the hook behind the tensor's others, and notes the tensor in it. Throws `c10::NotImplementedError` if
/// Python's hooks are there.
void attach_to_leaf(const at::Tensor& leaf, const std::shared_ptr<Hook>& hook);
/// Takes it off again, with everything that attaching made.
void detach_from_leaf(Hook& hook) noexcept;

}  // namespace torchtap::hooks::detail
