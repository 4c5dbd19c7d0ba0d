#pragma once

/// Covariance of the features of two tensors.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/statistics/covariance.hpp>

namespace torchtap::reductions {

/// Covariance and correlation of each feature of the sample with each of another tensor.
///
/// `core::Context` names the other tensor around the forward. A row is one observation: a sample [N, …] and
/// the other tensor [N, …] are flattened to [N, D] and [N, E]. Kept in float64 (complex128), D × E numbers,
/// combined pairwise and gathered as for `Covariance`; `joint(name, Covariance)` has the covariances within
/// each, too. Under `NonFinite::omit` a row is left out if either side is not finite.
class TORCHTAP_API CrossCovariance : public ProductOfRows {
 public:
  /// Rows lie along dimension 0; throws `c10::ValueError` if the options name other ones.
  explicit CrossCovariance(std::string other, CovarianceOptions options = {});

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const CrossCovariance& other);

  /// `[D, E]`: entry i, j is the covariance of feature i of the sample and feature j of the other tensor. All
  /// results throw `c10::ValueError` if there are no samples.
  at::Tensor covariance() const;
  /// `[D, E]`, Pearson's; NaN for a constant feature.
  at::Tensor correlation() const;
  /// "mean" and "variance" [D], "NAME.mean" and "NAME.variance" [E], "covariance" and "correlation" [D, E],
  /// and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  /// "CrossCovariance(other, over=[0])".
  std::string describe() const;
  /// The other tensor's name.
  std::vector<std::string> companions() const { return {name_}; }
  CrossCovariance fresh() const;

 private:
  friend class cereal::access;
  void check_sample(const Pass& pass) const override;
  void fold(const Pass& pass) override;
  void take(const statistics::detail::Observations& batch) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, name_, unbiased_, start_, taken_, mean_, squares_, product_, block_);
    if constexpr (Archive::is_loading::value) restored();
  }
  CrossCovariance settled() const;
  at::Tensor over_rows(const at::Tensor& sums) const;
  void restored();

  std::string name_;
  bool unbiased_;
  std::int64_t start_ = 0;  // D; the features of the other tensor follow
  extend::Owned mean_;      // [D + E]
  extend::Owned squares_;   // [D + E], real: sums of |x - mean|²
  extend::Owned product_;   // [D, E], the sum of (x - mean) conj(y - mean)
};

}  // namespace torchtap::reductions
