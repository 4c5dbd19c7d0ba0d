#pragma once

#include <torchtap/base/api.hpp>

/// Reductions of samples on CUDA devices by kernels made for them.
namespace torchtap::cuda {

/// From now on `Moments`, `Histogram`, `LogHistogram` and `Count` read samples on CUDA devices with one to
/// four kernels each, in place of the tens of operations of ATen that they are made of otherwise. Results are
/// the same up to rounding: moments are computed in float64, in one order, and counts are exact. They serve
/// samples of float16, bfloat16, float32, float64, integers and bool without omitted elements
/// (`NonFinite::omit`).
///
/// NVRTC, which LibTorch brings along, compiles the kernels: 0.3 s for the first sample of each dtype and
/// device. The calling thread's current device is tried at once. Throws `c10::Error` that says what is
/// missing; reductions then continue with ATen's operations.
TORCHTAP_API void enable_fused_kernels();
/// From now on reductions are ATen's operations again. Nothing happens if they are already.
TORCHTAP_API void disable_fused_kernels() noexcept;
/// Whether `enable_fused_kernels` was the later of the two.
TORCHTAP_API bool fused_kernels_enabled() noexcept;

}  // namespace torchtap::cuda
