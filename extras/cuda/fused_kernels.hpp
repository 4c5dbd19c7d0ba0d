#pragma once

#include <torchtap/base/api.hpp>

/// Reductions of samples on CUDA devices by kernels made for them.
namespace torchtap::cuda {

/// From now on recorders add samples on CUDA devices up there, with one kernel for each sample: `Sum`,
/// `Mean`, `Moments`, `Min`, `Max`, `AbsMax`, `Norm`, `EMA`, `Count`, `Histogram` of a
/// given range, `LogHistogram`, and any `Series` of these, over rows or over all, of floating dtypes. The
/// kernels may be captured in a CUDA graph, whose replays then are samples, and `RecorderOptions::defer` adds
/// up many samples in one launch. A reduction that the program updates itself has kernels of its own where it
/// is `Moments`, `Histogram`, `LogHistogram` or `Count`, also of integers and bool, without omitted elements
/// (`NonFinite::omit`).
///
/// Results are the same as without up to rounding: moments are computed in float64, in one order, and counts
/// are exact. The idea of one pass that merges chunks is Chan, Golub & LeVeque's (1983).
///
/// NVRTC, which LibTorch brings along, compiles the kernels: half a second for the first sample of each
/// dtype, device and kind of statistics. The calling thread's current device is tried at
/// once: some thousand numbers have to give what they give on the CPU. Throws `c10::Error` that says what is
/// missing or wrong; reductions then continue with ATen's operations.
TORCHTAP_API void enable_fused_kernels();
/// From now on reductions are ATen's operations again. Nothing happens if they are already.
TORCHTAP_API void disable_fused_kernels() noexcept;
/// Whether `enable_fused_kernels` was the later of the two.
TORCHTAP_API bool fused_kernels_enabled() noexcept;

}  // namespace torchtap::cuda
