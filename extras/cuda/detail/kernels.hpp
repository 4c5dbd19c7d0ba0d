#pragma once

#include <c10/core/Device.h>

#include <memory>

#include <torchtap/cuda/detail/launcher.hpp>
#include <torchtap/cuda/detail/page_kernels.hpp>

namespace torchtap::cuda::detail {

/// The kernels of `source.hpp`, for devices of this one's type, for which it compiles some. Throws
/// `c10::Error` that says what is missing. The launcher has to outlive them.
std::unique_ptr<PageKernels> make_kernels(const Launcher& launcher, c10::Device device);

}  // namespace torchtap::cuda::detail
