#pragma once
#pragma GCC system_header

// See batchnorm.h beside this file.

#include_next <torch/nn/modules/instancenorm.h>

namespace torch::nn {
template <>
Tensor InstanceNormImpl<1, InstanceNorm1dImpl>::forward(const Tensor& input);
template <>
Tensor InstanceNormImpl<2, InstanceNorm2dImpl>::forward(const Tensor& input);
template <>
Tensor InstanceNormImpl<3, InstanceNorm3dImpl>::forward(const Tensor& input);
}  // namespace torch::nn
