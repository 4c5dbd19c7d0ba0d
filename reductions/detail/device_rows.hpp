#pragma once

/// Finds the kernels that a device has for a sample, and the sample as they read it.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/device_kernels.hpp>

namespace torchtap::reductions::detail {

struct Rows;
using extend::DeviceKernels;
using extend::DeviceMoments;
using extend::DeviceRows;
using extend::installed;

/// The kernels that read these rows; null if there are none, or if elements are to be left out.
TORCHTAP_API DeviceKernels* kernels_for(const Rows& rows);
/// The rows in memory; a copy if they lie in another order.
TORCHTAP_API DeviceRows device_rows(const Rows& rows);

}  // namespace torchtap::reductions::detail
