#pragma once

#include <c10/core/Device.h>

namespace torchtap::cuda::detail {

/// Throws `c10::Error` unless the installed kernels compute on this device what the CPU does of the same
/// numbers. Waits for the device.
void expect_right_numbers(c10::Device device);

}  // namespace torchtap::cuda::detail
