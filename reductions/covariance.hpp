#pragma once

#include <torch/arg.h>

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {

/// `CovarianceOptions().over({0}).unbiased(false)`.
class TORCHTAP_API CovarianceOptions : public FoldOptions<CovarianceOptions> {
  /// Whether to divide by n - 1, as `torch::cov` does, or by n.
  TORCH_ARG(bool, unbiased) = true;
};
/// `GramOptions().over({0})`.
class TORCHTAP_API GramOptions : public FoldOptions<GramOptions> {};

/// Mean, covariance and correlation of the features of a row.
///
/// A row is one observation of D features: a sample `[D]`, or each row of `[N, D]` under `over({0})`; kept
/// dimensions beyond one are flattened to D. Any numeric dtype and device; deviations are kept in float64
/// (complex128) and combined pairwise (Chan, Golub & LeVeque 1983), D^2 numbers. Under `NonFinite::omit` a
/// row with any non-finite feature is left out as a whole and counted.
class TORCHTAP_API Covariance {
 public:
  explicit Covariance(CovarianceOptions options = {});

  /// Adds a sample. Throws `c10::ValueError` on another shape or device, or a non-finite element under
  /// `NonFinite::raise`; `c10::TypeError` on quantized or sparse tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration or shape; the state is then unchanged.
  void merge(const Covariance& other);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// `[D]`. This and the others throw `c10::ValueError` if there are no samples.
  at::Tensor mean() const;
  /// `[D, D]`, over n - 1, or n with `unbiased(false)`; NaN for one row.
  at::Tensor covariance() const;
  /// `[D, D]`, Pearson's, as `torch::corrcoef`; NaN for a constant feature.
  at::Tensor correlation() const;
  /// How many rows were left out, int64 without dimensions.
  at::Tensor omitted() const;
  /// "mean", "covariance", "correlation", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  std::string describe() const { return intake_.describe(unbiased_ ? "" : "biased"); }
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  bool commutative() const noexcept { return true; }
  Covariance fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, unbiased_, taken_, mean_, product_);
    if constexpr (Archive::is_loading::value) restored();
  }

 private:
  void combine(const at::Tensor& taken, const at::Tensor& mean, const at::Tensor& product);
  void restored() const;

  detail::Intake intake_;
  bool unbiased_;
  detail::Owned taken_;    // rows taken, float64 without dimensions
  detail::Owned mean_;     // [D]
  detail::Owned product_;  // [D, D], the sum of (x - mean) (x - mean)^H
};

/// The Gram matrix X^H X of the rows: the sum of conj(x_i) x_j, not centred, not divided.
///
/// Rows, dtypes and `NonFinite::omit` as for `Covariance`; kept in float64 (complex128).
class TORCHTAP_API Gram {
 public:
  explicit Gram(GramOptions options = {});

  /// Adds a sample. Throws as `Covariance::update`; the state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// As `Covariance::merge`.
  void merge(const Gram& other);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// `[D, D]`. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// How many rows were left out, int64 without dimensions.
  at::Tensor omitted() const;
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  std::string describe() const { return intake_.describe(); }
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  bool commutative() const noexcept { return true; }
  Gram fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, taken_, product_);
    if constexpr (Archive::is_loading::value) restored();
  }

 private:
  void restored() const;

  detail::Intake intake_;
  detail::Owned taken_;
  detail::Owned product_;
};

}  // namespace torchtap::reductions
