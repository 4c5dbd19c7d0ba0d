#pragma once

/// Joins the rows of a sample with those of another tensor.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace torchtap::statistics::detail {

/// Each row of the sample with the same row of the companion behind it: [N, D + E], of a sample [N, …] with D
/// numbers in a row and a companion [N, …] with E. `start` is D, as it was before; if it is 0, it is set.
/// Throws `c10::ValueError` if there is no such companion, or N, D or the device is another; `what` is the
/// class that asks.
at::Tensor side_by_side(const char* what, const std::string& name, const at::Tensor& sample,
                        std::int64_t& start);

}  // namespace torchtap::statistics::detail
