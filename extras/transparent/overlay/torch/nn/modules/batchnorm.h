#pragma once
#pragma GCC system_header

// See ../pimpl.h. LibTorch defines this forward in its header, where the compiler would inline it. Declared
// as a specialisation, it is called in libtorchtap_transparent, which runs LibTorch's own.

#include_next <torch/nn/modules/batchnorm.h>

#include <torchtap/transparent/detail/norms.hpp>

namespace torch::nn {
template <>
Tensor BatchNormImplBase<1, BatchNorm1dImpl>::forward(const Tensor& input);
template <>
Tensor BatchNormImplBase<2, BatchNorm2dImpl>::forward(const Tensor& input);
template <>
Tensor BatchNormImplBase<3, BatchNorm3dImpl>::forward(const Tensor& input);
}  // namespace torch::nn

namespace torchtap::transparent::detail {
inline const bool norms_noted = note_norms();
}
