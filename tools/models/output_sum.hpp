#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace torchtap::tools {

/// The sum of all elements that a model returned and that have a gradient, to run a backward from. Throws
/// `c10::ValueError` if there are none.
at::Tensor sum_of_outputs(const c10::IValue& result);

}  // namespace torchtap::tools
