#pragma once

#include <torch/arg.h>

#include <string>
#include <vector>

#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {

/// `MomentsOptions().over({0}).unbiased(false)`.
class TORCHTAP_API MomentsOptions : public FoldOptions<MomentsOptions> {
  /// Whether to divide the variance by n - 1, as `torch::var` does, or by n.
  TORCH_ARG(bool, unbiased) = true;
};

/// Mean, variance, skewness and kurtosis, elementwise or over rows, in one pass.
///
/// Samples are `[...]`, any numeric dtype and device, and the results have their shape; `over(dims)` also
/// folds dimensions of each sample. Central moments are kept in float64 and combined pairwise (Chan, Golub &
/// LeVeque 1983; Pébay 2008), so neither a constant offset nor splitting the stream changes a variance. All
/// results are float64. For long runs of float32 and half types on the CPU, groups of sixteen powers are
/// summed in float32; the relative error stays below 1e-6. Complex samples have a complex mean and the
/// variance of `torch::var` (that of the real part plus that of the imaginary part), but no skewness or
/// kurtosis.
class TORCHTAP_API Moments {
 public:
  explicit Moments(MomentsOptions options = {});

  /// Adds a sample. Throws `c10::ValueError` if the shape or device differs, a non-finite element under
  /// `NonFinite::raise`, or complex samples after real ones; `c10::TypeError` on quantized or sparse tensors.
  /// The state is unchanged if it throws.
  void update(const at::Tensor& sample);
  /// Throws whatever `update` would throw for this sample, without changing the state.
  void check(const at::Tensor& sample) const;
  /// The steps of an update that shares one pass over the sample with other reductions; see `Series::update`.
  void ask(detail::Scan& scan) const;
  void check(const detail::Scan& scan) const;
  void update(const detail::Scan& scan);
  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const Moments& other);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// Sum over n. All results throw `c10::ValueError` if there are no samples.
  at::Tensor mean() const;
  /// Sum of squared deviations over n - 1, or n with `unbiased(false)`; NaN for 0 / 0.
  at::Tensor variance() const;
  /// g1 = m3 / m2^(3/2), with central moments over n (biased, as `scipy.stats.skew`); NaN for a constant.
  /// Throws `c10::TypeError` for complex samples.
  at::Tensor skewness() const;
  /// The excess g2 = m4 / m2^2 - 3, 0 for a normal distribution, with central moments over n (biased, as
  /// `scipy.stats.kurtosis`); NaN for a constant. Throws `c10::TypeError` for complex samples.
  at::Tensor kurtosis() const;
  /// Number of non-finite elements left out, int64, in the shape of the results.
  at::Tensor omitted() const;
  /// "mean", "variance", and for real samples "skewness", "kurtosis"; "omitted" under `NonFinite::omit`.
  core::Results results() const;
  std::string describe() const { return intake_.describe(unbiased_ ? "" : "biased"); }
  /// Recipe for `restore`.
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
