#pragma once

/// Computes the mean, covariance and correlation of features, and Gram matrices.

#include <torch/arg.h>

#include <string>
#include <utility>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/statistics/detail/block.hpp>

namespace torchtap::reductions {

/// `CovarianceOptions().over({0}).unbiased(false)`.
class TORCHTAP_API CovarianceOptions : public FoldOptions<CovarianceOptions> {
  /// Whether to divide by n - 1, as `torch::cov` does, or by n.
  TORCH_ARG(bool, unbiased) = true;
};
/// `GramOptions().over({0})`.
class TORCHTAP_API GramOptions : public FoldOptions<GramOptions> {};

}  // namespace torchtap::reductions

namespace torchtap::statistics::detail {

/// Observations [n, D] in float64 (complex128), those left out zeroed; how many were taken, float64 without
/// dimensions; and which, [n, 1], undefined if all.
struct Observations {
  at::Tensor x, taken, mask;
  bool own = false;  ///< whether `x` may be changed
};

/// The options, with rows along dimension 0. Throws `c10::ValueError` if they name other ones.
reductions::CovarianceOptions along_rows(const char* what, reductions::CovarianceOptions options);

}  // namespace torchtap::statistics::detail

namespace torchtap::reductions {

/// The common part of `Covariance`, `CrossCovariance` and `Gram`: small samples are gathered, because the
/// product of many rows costs little more than the product of one.
class TORCHTAP_API ProductOfRows : public Reduction {
 public:
  /// Number of rows left out, int64 without dimensions. Throws `c10::ValueError` if there are no samples.
  at::Tensor omitted() const;

 protected:
  explicit ProductOfRows(extend::Intake intake) : Reduction(std::move(intake)) {}
  ProductOfRows(const ProductOfRows&) = default;
  ProductOfRows(ProductOfRows&&) = default;
  ProductOfRows& operator=(const ProductOfRows&) = default;
  ProductOfRows& operator=(ProductOfRows&&) = default;
  ~ProductOfRows() override = default;

  void check_sample(const Pass& pass) const override;
  void fold(const Pass& pass) override;
  /// Folds observations into the state. If it throws, the state is unchanged.
  virtual void take(const statistics::detail::Observations& batch) = 0;
  /// Folds the gathered rows into the state.
  void settle();

  // The derived classes of this library keep their state beside these. NOLINTBEGIN
  statistics::detail::Block block_;  // rows that are counted, but not in the state
  extend::Owned taken_;              // rows taken, float64 without dimensions
                                     // NOLINTEND

 private:
  void expect_products(const at::Tensor& x) const;
  void settle_if_full(std::int64_t appended);
};

/// Mean, covariance and correlation of the features of a row.
///
/// A row is one observation of D features: a sample `[D]`, or each row of `[N, D]` under `over({0})`. Several
/// kept dimensions are flattened to D. Any numeric dtype and device. Deviations are kept in float64
/// (complex128), D^2 numbers, and combined pairwise (Chan, Golub & LeVeque 1983), so that the relative
/// error of a variance is at most some 2^-52 |mean| / deviation, however the stream is split. A sample on the
/// CPU with finite numbers above 2^480 (3e144), whose products float64 may not hold, is an error that is an
/// `Unfit`; on a device, where asking would wait for it, results are infinite or NaN. Small samples are
/// copied and gathered, 128 to 512 rows, and folded in together; results, merges and archives have them too.
/// Under `NonFinite::omit` a row with any non-finite feature is left out as a whole and counted.
class TORCHTAP_API Covariance : public ProductOfRows {
 public:
  explicit Covariance(CovarianceOptions options = {});

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const Covariance& other);

  /// `[D]`. All results throw `c10::ValueError` if there are no samples.
  at::Tensor mean() const;
  /// `[D, D]`, over n - 1, or n with `unbiased(false)`; NaN for one row.
  at::Tensor covariance() const;
  /// `[D, D]`, Pearson's, as `torch::corrcoef`; NaN for a constant feature.
  at::Tensor correlation() const;
  /// "mean", "covariance", "correlation", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  std::string describe() const { return intake_.describe(unbiased_ ? "" : "biased"); }
  Covariance fresh() const;

 private:
  friend class cereal::access;
  void take(const statistics::detail::Observations& batch) override;
  template <class Archive>
  void serialize(Archive& archive) {
    const auto version = core::state_version(archive, intake_.name(), 2);
    archive(intake_, unbiased_, taken_, mean_, product_);
    if constexpr (Archive::is_loading::value) block_ = statistics::detail::Block();
    if (version >= 2) archive(block_);
    if constexpr (Archive::is_loading::value) restored();
  }
  Covariance settled() const;
  void combine(const at::Tensor& taken, const at::Tensor& mean, const at::Tensor& product);
  void restored() const;

  bool unbiased_;
  extend::Owned mean_;     // [D]
  extend::Owned product_;  // [D, D], the sum of (x - mean) (x - mean)^H
};

/// The Gram matrix X^H X of the rows: the sum of conj(x_i) x_j, not centred, not divided.
///
/// Rows, dtypes, gathering and `NonFinite::omit` as for `Covariance`; kept in float64 (complex128).
class TORCHTAP_API Gram : public ProductOfRows {
 public:
  explicit Gram(GramOptions options = {});

  /// As `Covariance::merge`.
  void merge(const Gram& other);

  /// `[D, D]`. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  Gram fresh() const;

 private:
  friend class cereal::access;
  void take(const statistics::detail::Observations& batch) override;
  template <class Archive>
  void serialize(Archive& archive) {
    const auto version = core::state_version(archive, intake_.name(), 2);
    archive(intake_, taken_, product_);
    if constexpr (Archive::is_loading::value) block_ = statistics::detail::Block();
    if (version >= 2) archive(block_);
    if constexpr (Archive::is_loading::value) restored();
  }
  Gram settled() const;
  void restored() const;

  extend::Owned product_;
};

}  // namespace torchtap::reductions
