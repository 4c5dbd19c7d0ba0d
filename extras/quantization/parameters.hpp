#pragma once

/// From the distribution of a tensor to its scale and zero point.

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <torchtap/base/api.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::quantization {

/// The integers that a tensor is rounded to: -128 to 127, 0 to 255, -8 to 7.
enum class Dtype : std::uint8_t { int8, uint8, int4 };
/// The names of all dtypes, in their order.
inline constexpr std::array<std::string_view, 3> dtype_names{"int8", "uint8", "int4"};
/// One of `dtype_names`.
TORCHTAP_API std::string_view name_of(Dtype dtype) noexcept;
/// The dtype of that name. Throws `c10::ValueError` that lists the names.
TORCHTAP_API Dtype dtype_of(std::string_view name);
/// How many bits an integer of the dtype has.
TORCHTAP_API std::int64_t bits(Dtype dtype) noexcept;

/// The way to choose the range that the integers cover; values beyond it are clipped.
enum class Method : std::uint8_t {
  /// From the least to the largest value: torch.ao's `MinMaxObserver`.
  min_max,
  /// Without the outermost values: ONNX Runtime's percentile calibrator. Affine parameters leave half of the
  /// remainder out at each end; symmetric ones take the percentile of the magnitudes.
  percentile,
  /// The search for the least squared error of torch.ao's `HistogramObserver`, in float64: at each step it
  /// leaves out the next 1e-5 of the values at one end, until the error grows. Up to 2048 equal bins are
  /// searched as they are, others as 2048 equal ones. Zeros that are counted apart cost nothing.
  mse,
  /// The threshold of magnitudes whose clipped distribution loses least by the Kullback-Leibler divergence
  /// (Migacz, "8-bit inference with TensorRT", 2017): magnitudes in 2048 equal bins, merged into 128 levels
  /// (8 for int4). The first bin, where zeros lie, counts as the second, as in NVIDIA's calibrators.
  entropy,
};
/// The names of all methods, in their order.
inline constexpr std::array<std::string_view, 4> method_names{"min_max", "percentile", "mse", "entropy"};
/// One of `method_names`.
TORCHTAP_API std::string_view name_of(Method method) noexcept;
/// The method of that name. Throws `c10::ValueError` that lists the names.
TORCHTAP_API Method method_of(std::string_view name);

/// `QuantizationOptions().method(Method::entropy).dtype(Dtype::int8).symmetric(true)`.
class TORCHTAP_API QuantizationOptions {
 public:
  /// The method that chooses the range.
  TORCH_ARG(Method, method) = Method::mse;
  /// The integers of the result.
  TORCH_ARG(Dtype, dtype) = Dtype::int8;
  /// A zero point in the middle of the integers and a range that is as wide on both sides of zero.
  TORCH_ARG(bool, symmetric) = false;
  /// The percentage of values that `Method::percentile` keeps inside of the range.
  TORCH_ARG(double, percentile) = 99.99;
  /// The dimension of the tensor that the channels lie in, if the distribution has one row for each; from the
  /// end if negative.
  TORCH_ARG(std::int64_t, axis) = 1;
  /// The dtype of the weights of a layer (`Calibration`); none leaves them in floating point.
  TORCH_ARG(std::optional<Dtype>, weights) = Dtype::int8;
};

/// Scale and zero point of a tensor, or of each of its channels: `real = (integer - zero_point) * scale`.
struct TORCHTAP_API Parameters {
  Dtype dtype = Dtype::int8;  ///< of the integers
  at::Tensor scale;           ///< float32, `[]` or `[channels]`
  at::Tensor zero_point;      ///< int32, of the same shape
  at::Tensor low, high;  ///< the chosen range before it was widened to include zero; float32, the same shape
  /// The dimension of the channels; nothing for one scale for the whole tensor.
  std::optional<std::int64_t> axis;

  /// The least and the largest integer of the dtype.
  std::int64_t quant_min() const noexcept;
  /// The largest integer of the dtype.
  std::int64_t quant_max() const noexcept;
  /// Rounds a tensor to the integers and back, by `at::fake_quantize_per_tensor_affine` or
  /// `…_per_channel_affine`. Keeps its dtype: others than float32 are converted to float32 and back. Integers
  /// and bools come back as they are. Throws `c10::ValueError` if the tensor lacks the axis or has another
  /// number of channels.
  at::Tensor apply(const at::Tensor& tensor) const;
};

/// The parameters for values in a range, per tensor (`low` and `high` without dimensions) or channel
/// (`[channels]`), in float32 as torch.ao's `calculate_qparams` computes them: the range is widened to
/// include zero, and the scale is at least float32's epsilon. Throws `c10::ValueError` if a bound is not
/// finite or `low` is above `high`.
TORCHTAP_API Parameters from_range(const at::Tensor& low, const at::Tensor& high,
                                   const QuantizationOptions& options);

/// The parameters for a distribution that a reduction has recorded. It takes the results of a `Histogram`, a
/// `LogHistogram`, `Blocks`, or a `Series` with one of these, `Min` and `Max`. Results with a row for each
/// kept element are per channel; if there are several histograms, the first one counts.
///
/// `Method::min_max` needs `Min` and `Max` for exact bounds, and takes the outermost bins in use otherwise.
/// The other methods need a histogram; in a bin, values count as equally distributed. `Min` and `Max` beside
/// it bound the outermost bins. NaN and infinities are left out; a `Histogram` counts infinities like other
/// values beyond its range.
///
/// Throws `c10::ValueError` that says what is missing and which reduction to record: no results, no histogram
/// for a method that needs one, no finite value, a percentile outside of (0, 100], a histogram whose
/// fixed range leaves out more of the values than the method clips.
TORCHTAP_API Parameters parameters(const core::Results& results, const QuantizationOptions& options = {});

/// The parameters for a reduction.
template <class R, class = std::enable_if_t<core::is_reduction_v<R>>>
Parameters parameters(const R& reduction, const QuantizationOptions& options = {}) {
  return parameters(reduction.results(), options);
}

/// The parameters of a weight: symmetric, from the least to the largest value of each channel along `axis`,
/// as torch.ao's `default_per_channel_weight_observer`.
TORCHTAP_API Parameters weight_parameters(const at::Tensor& weight, Dtype dtype, std::int64_t axis = 0);

}  // namespace torchtap::quantization
