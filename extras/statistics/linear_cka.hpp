#pragma once

/// Measures the similarity of two representations by linear centered kernel alignment (CKA).

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/statistics/covariance.hpp>
#include <torchtap/statistics/joint.hpp>

namespace torchtap::reductions {

/// Linear centered kernel alignment of the sample's rows and the rows of another tensor: 1 if one is the
/// other rotated and scaled, near 0 if they have nothing to do with each other (Kornblith et al. 2019,
/// "Similarity of Neural Network Representations Revisited").
///
/// `core::Context` names the other tensor around the forward; rows as for `joint`: a sample [N, …] and the
/// other tensor [N, …] are flattened to [N, D] and [N, E]. The value is the same as for all rows at once,
/// however they are batched; the state is their covariance, (D + E)^2 numbers in float64, so pool maps first.
class TORCHTAP_API LinearCKA {
 public:
  /// Under `NonFinite::omit` a row is left out if either side is not finite. Rows lie along dimension 0;
  /// throws `c10::ValueError` if the options name other ones.
  explicit LinearCKA(std::string other, CovarianceOptions options = {});

  /// Throws as `Joint::update` and `Covariance::update` do. The state is unchanged then.
  void update(const at::Tensor& sample) { joint_.update(sample); }
  /// Throws the error that `update` would throw for this sample. Changes nothing.
  void check(const at::Tensor& sample) const { joint_.check(sample); }
  /// Throws `c10::ValueError` if the names, the configurations or the sizes differ.
  void merge(const LinearCKA& other) { joint_.merge(other.joint_); }
  /// Number of rows.
  std::int64_t count() const { return joint_.count(); }
  /// ‖Cxy‖² / (‖Cxx‖ ‖Cyy‖), Frobenius norms of the blocks of the covariance, float64 without dimensions; NaN
  /// if a side is constant. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// "value", and "omitted" under `NonFinite::omit`. Empty before the first sample.
  core::Results results() const;
  /// "LinearCKA(other)".
  std::string describe() const;
  /// Yes.
  bool commutative() const { return joint_.commutative(); }
  /// The other tensor's name.
  std::vector<std::string> companions() const { return joint_.companions(); }
  LinearCKA fresh() const;

  /// Writes configuration and state, for cereal.
  void save(core::OutputArchive& archive) const;
  /// Reads configuration and state, for cereal.
  void load(core::InputArchive& archive);

 private:
  friend struct core::Access;
  std::string recipe() const { return "LinearCKA"; }
  const Covariance& covariance() const;

  Joint joint_;  // of a Covariance
};

}  // namespace torchtap::reductions
