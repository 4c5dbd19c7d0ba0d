#pragma once

/// Declares the kernels for samples on devices, which a component installs. Without them reductions are
/// ATen's operations.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/bit_bins.hpp>

namespace torchtap::reductions::extend {

/// A sample in the memory of a device: element (o, k, i) lies at (o * kept + k) * inner + i, and is one of
/// outer * inner rows of kept element k.
struct DeviceRows {
  at::Tensor memory;
  std::int64_t outer, kept, inner;

  std::int64_t rows() const noexcept { return outer * inner; }
};

/// The state of `Moments`, float64 `[kept]` on the device; m3 and m4 are undefined for order 2.
struct DeviceMoments {
  at::Tensor mean, m2, m3, m4;
};

/// Each call changes states in place, as later work of the device's current stream, and waits for nothing.
/// Throws `c10::Error`, having changed nothing, if the device refuses the work.
class TORCHTAP_API DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  /// Whether it reads plain numbers of this dtype on this device.
  virtual bool reads(const at::Tensor& sample) const = 0;
  /// Folds rows into the moments of `before` rows.
  virtual void fold_moments(const DeviceRows& rows, std::int64_t before, const DeviceMoments& state) = 0;
  /// Adds the numbers of NaN, infinities and zeros among all elements; int64 `[]`.
  virtual void count_kinds(const DeviceRows& rows, const at::Tensor& nan, const at::Tensor& infinities,
                           const at::Tensor& zeros) = 0;
  /// Adds the counts of each bin, of values below and above the range, and of NaN; int64 `[kept, bins + 3]`.
  /// `edges` is float64 `[bins + 1]`, on the device.
  virtual void count_bins(const DeviceRows& rows, const at::Tensor& edges, const at::Tensor& counts) = 0;
  /// Counts in a range that grows as that of `Histogram` does: the state is moved to the bins of the new
  /// range first. `min` and `max` are float64 `[]`, `exponent` and `start` int64 `[]`.
  virtual void count_growing_bins(const DeviceRows& rows, const at::Tensor& min, const at::Tensor& max,
                                  const at::Tensor& exponent, const at::Tensor& start,
                                  const at::Tensor& counts) = 0;
  /// Adds the counts of each slot; int64 `[kept, bins.slots()]`.
  virtual void count_bits(const DeviceRows& rows, BitBins bins, const at::Tensor& counts) = 0;
};

/// Sets the kernels in use, which have to live as long as the program; null removes them.
TORCHTAP_API void install(DeviceKernels* kernels) noexcept;
/// The kernels in use; null if there are none.
TORCHTAP_API DeviceKernels* installed() noexcept;

}  // namespace torchtap::reductions::extend
