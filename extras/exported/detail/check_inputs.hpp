#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <torchtap/exported/detail/package.hpp>

namespace torchtap::exported::detail {

/// Throws `c10::ValueError` unless the inputs match the inputs of the export, because compiled code would
/// read past the end of a smaller tensor. Does nothing for a package without a list of inputs.
void check_inputs(const Package& package, const std::vector<at::Tensor>& inputs);

}  // namespace torchtap::exported::detail
