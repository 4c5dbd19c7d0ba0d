#pragma once

#include <ATen/core/Tensor.h>

namespace torchtap::tools::pictures::detail {

/// The values as contiguous doubles on the CPU; complex ones by their absolute values.
at::Tensor plain(const at::Tensor& tensor);

}  // namespace torchtap::tools::pictures::detail
