#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <torchtap/exported/detail/package.hpp>

namespace torchtap::exported::detail {

/// Throws `c10::ValueError` unless the inputs are like those that the package was exported with; compiled
/// code does not look and would read past the end of a tensor. Does nothing for a package that does not list
/// its inputs.
void check_inputs(const Package& package, const std::vector<at::Tensor>& inputs);

}  // namespace torchtap::exported::detail
