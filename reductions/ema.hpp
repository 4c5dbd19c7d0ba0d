#pragma once

#include <torch/arg.h>

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {

/// `EMAOptions(0.99).over({0})`.
class TORCHTAP_API EMAOptions : public FoldOptions<EMAOptions> {
 public:
  EMAOptions(double decay = 0.9) : decay_(decay) {}  // NOLINT: a decay is all there is to say
  /// The weight of what was against what comes, in [0, 1): each sample counts `decay` times its successor.
  TORCH_ARG(double, decay);
};

/// The exponential moving average of the samples, elementwise or over rows.
///
/// With d the decay and n samples, the value is the weighted mean of all samples with the weights
/// d^(n-1), ..., d, 1. It starts from zero and is divided by 1 - d^n (the bias correction of Adam, Kingma &
/// Ba 2015), so the first value is the first sample, and `merge`, which weighs this stream by d^(other's n),
/// is exactly the average of both streams in a row. Kept in float64 (complex128); given in the dtype of the
/// samples, float32 for the half types, float64 for integers. Under `NonFinite::omit` an element that is left
/// out does not age what was before it.
class TORCHTAP_API EMA {
 public:
  /// Throws `c10::ValueError` unless the decay is in [0, 1).
  explicit EMA(EMAOptions options = {});

  /// Adds a sample. Throws `c10::ValueError` on another shape or device, or a non-finite element under
  /// `NonFinite::raise`; `c10::TypeError` on quantized or sparse tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration or shape; the state is then unchanged.
  void merge(const EMA& other);
  /// Goes on from `value` as the average of all samples so far.
  void assign(const at::Tensor& value);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The average; NaN where every element was omitted. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// How many non-finite elements were left out, int64 in the shape of the value. Throws as `value`.
  at::Tensor omitted() const;
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  /// "EMA(0.9)".
  std::string describe() const;
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  EMA fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, decay_, sum_);
    if constexpr (Archive::is_loading::value) {
      intake_.check_restored(decay_ >= 0 && decay_ < 1);
      intake_.check_restored(*sum_);
    }
  }

 private:
  detail::Intake intake_;
  double decay_;
  detail::Owned sum_;  // of (1 - d) d^(n - 1 - i) x_i
};

}  // namespace torchtap::reductions
