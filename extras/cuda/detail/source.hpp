#pragma once

namespace torchtap::cuda::detail {

/// CUDA C++ of the kernels. They are named in kernels.cpp, which launches them.
extern const char kSource[];

}  // namespace torchtap::cuda::detail
