#pragma once

// Arguments of a TorchScript method of the tensors that hooks saw in them.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace c10 {
struct FunctionSchema;
}

namespace torchtap::views::monitor::detail {

/// Puts `tensors` into arguments of the declared types, in order; the first of `schema` is the module itself.
/// Throws `c10::ValueError` that names the argument which cannot be made of them.
std::vector<c10::IValue> script_arguments(const c10::FunctionSchema& schema,
                                          const std::vector<at::Tensor>& tensors);

}  // namespace torchtap::views::monitor::detail
