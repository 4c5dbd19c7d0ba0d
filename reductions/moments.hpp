#pragma once

#include <torch/arg.h>

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <vector>

namespace torchtap::reductions {

/// `MomentsOptions().over({0}).unbiased(false)`.
class TORCHTAP_API MomentsOptions : public FoldOptions<MomentsOptions> {
  /// Whether the variance is divided by n - 1, as `torch::var` does, or by n.
  TORCH_ARG(bool, unbiased) = true;
};

/// Mean, variance, skewness and kurtosis, elementwise or over rows, in one pass.
///
/// Samples are `[...]`, any numeric dtype and device, and the results have their shape; `over(dims)` folds
/// dimensions of each sample too. Central moments are kept in float64 and combined pairwise (Chan, Golub &
/// LeVeque 1983; Pébay 2008), so that neither a constant offset nor the way a stream is split changes a
/// variance; all results are float64. Of long runs of float32 and the half types on the CPU, sixteen powers
/// at a time are summed in float32; the relative error stays below 1e-6. Complex samples have a complex mean
/// and the variance of `torch::var` (that of the real part plus that of the imaginary part), but no skewness
/// and kurtosis.
class TORCHTAP_API Moments {
 public:
  explicit Moments(MomentsOptions options = {});

  /// Adds a sample. Throws `c10::ValueError` on another shape or device, a non-finite element under
  /// `NonFinite::raise`, or complex samples after real ones; `c10::TypeError` on quantized or sparse tensors.
  /// The state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// The three steps of an update that shares its pass over the sample, as those of a `Series` do.
  void ask(detail::Scan& scan) const;
  void check(const detail::Scan& scan) const;
  void update(const detail::Scan& scan);
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration or shape; the state is then unchanged.
  void merge(const Moments& other);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// Sum over n. This and the others throw `c10::ValueError` if there are no samples.
  at::Tensor mean() const;
  /// Sum of squared deviations over n - 1, or n with `unbiased(false)`; NaN where that is 0 over 0.
  at::Tensor variance() const;
  /// g1 = m3 / m2^(3/2), with central moments over n (biased, as `scipy.stats.skew`); NaN for a constant.
  /// Throws `c10::TypeError` for complex samples.
  at::Tensor skewness() const;
  /// The excess g2 = m4 / m2^2 - 3, 0 for a normal distribution, with central moments over n (biased, as
  /// `scipy.stats.kurtosis`); NaN for a constant. Throws `c10::TypeError` for complex samples.
  at::Tensor kurtosis() const;
  /// How many non-finite elements were left out, int64 in the shape of the results.
  at::Tensor omitted() const;
  /// "mean", "variance", and for real samples "skewness", "kurtosis"; "omitted" under `NonFinite::omit`.
  core::Results results() const;
  std::string describe() const { return intake_.describe(unbiased_ ? "" : "biased"); }
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  bool commutative() const noexcept { return true; }
  Moments fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, unbiased_, mean_, m2_, m3_, m4_);
    if constexpr (Archive::is_loading::value) restored();
  }

 private:
  struct Part;
  void fold(const std::vector<detail::Summary>& kept);
  Part part() const;
  void combine(const Part& other);
  void check_kind(const at::Tensor& sample) const;
  void require_real(const char* what) const;
  void restored() const;

  detail::Intake intake_;
  bool unbiased_;
  detail::Owned mean_, m2_, m3_, m4_;  // m_k: the sum of (x - mean)^k; m3 and m4 only for real samples
};

}  // namespace torchtap::reductions
