#pragma once

#include <string>
#include <torchtap/reductions/intake.hpp>

namespace torchtap::reductions {

/// `MeanOptions().over({0}).non_finite(NonFinite::omit)`.
class MeanOptions : public FoldOptions<MeanOptions> {};

/// The arithmetic mean of the samples, elementwise or over rows.
///
/// Samples are `[...]`, any numeric dtype and device, and the mean has their shape; `over(dims)` folds
/// dimensions of each sample too. The sum is kept in float64 (complex128), so that long streams of float32
/// stay exact; the mean is given in the dtype of the samples, float32 for the half types, float64 for
/// integers. Under `NonFinite::omit` each element has its own denominator, and one that was never finite is
/// NaN.
class Mean {
 public:
  explicit Mean(MeanOptions options = {});

  /// Adds a sample. Throws `c10::ValueError` on another shape or device, or a non-finite element under
  /// `NonFinite::raise`; `c10::TypeError` on quantized or sparse tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// The same if that takes no operation of ATen; else false, and nothing has changed.
  bool update_plain(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration or shape; the state is then unchanged.
  void merge(const Mean& other);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The mean. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// How many non-finite elements were left out, int64 in the shape of the mean. Throws as `value`.
  at::Tensor omitted() const;
  /// "value", and "omitted" under `NonFinite::omit`.
  core::State state() const;
  std::string describe() const { return intake_.describe(); }
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  Mean fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(intake_, sum_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*sum_);
  }

 private:
  detail::Intake intake_;
  detail::Owned sum_;
};

}  // namespace torchtap::reductions
