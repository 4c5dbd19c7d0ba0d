#pragma once

namespace torchtap::cuda::detail {

/// CUDA C++. `kKernels` and `kLedger` follow upon `kNumbers`, and are named in kernels.cpp, which launches
/// them.
extern const char kNumbers[], kKernels[], kLedger[];

}  // namespace torchtap::cuda::detail
