#pragma once

/// Compares tensors bit by bit, for the equality of values and results.

#include <ATen/core/Tensor.h>

namespace torchtap::core::detail {

/// Whether two tensors are the same in dtype, layout, shape, device and bytes; of tensors that are not
/// strided, in elements. Undefined tensors are the same. Waits for the device.
bool same(const at::Tensor& a, const at::Tensor& b);

}  // namespace torchtap::core::detail
