#pragma once

#include <torchtap/reductions/extend/device_kernels.hpp>

namespace torchtap::cuda::detail {

/// The kernels of `source.hpp`. The first call loads NVRTC and compiles for the thread's current device.
/// Throws `c10::Error` that says what is missing.
reductions::extend::DeviceKernels& kernels();

}  // namespace torchtap::cuda::detail
