#pragma once

/// Applies a reduction to the rows of a sample joined with the rows of another tensor.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/any.hpp>

namespace torchtap::reductions {

/// Applies a reduction to each row of a sample with the same row of another tensor behind it:
/// `joint("other", Covariance(CovarianceOptions().over({0})))` is given
/// `torch::cat({x.flatten(1), other.flatten(1)}, 1)`, [N, D + E].
///
/// `core::Context` names the other tensor around the forward. It has the sample's size in dimension 0 and its
/// device; the dtypes are promoted. A covariance of both has three blocks: of the sample, of the other, and
/// between them; see `least_squares`. If (D + E)^2 numbers are too many, see `CrossCovariance`.
class TORCHTAP_API Joint {
 public:
  /// Throws `c10::ValueError` if the reduction uses the same name.
  Joint(std::string other, Any reduction);

  /// Throws `c10::ValueError` if the other tensor is missing, has another size in dimension 0 or another
  /// device, or if a row of the sample has another size than before; and the reduction's errors. The state is
  /// unchanged then.
  void update(const at::Tensor& sample);
  /// Throws the error that `update` would throw for this sample. Changes nothing.
  void check(const at::Tensor& sample) const;
  /// Throws `c10::ValueError` if the names or the sizes of the samples' rows differ, and the reduction's
  /// errors.
  void merge(const Joint& other);
  /// The reduction's own count.
  std::int64_t count() const { return reduction_.count(); }
  /// D: how many numbers of a row are the sample's; the other tensor's follow. 0 before the first sample.
  std::int64_t start() const noexcept { return start_; }
  /// The results of the reduction, and "NAME.start", int64: `start()`. Empty before the first sample.
  core::Results results() const;
  /// The wrapped reduction.
  const Any& inner() const& noexcept { return reduction_; }
  /// For a temporary: returns by value.
  Any inner() && { return std::move(reduction_); }
  /// "Joint(other, Covariance(over=[0]))".
  std::string describe() const;
  /// Whether samples may come in any order, as the reduction says.
  bool commutative() const { return reduction_.commutative(); }
  /// The other tensor's name, and the names that the reduction uses.
  std::vector<std::string> companions() const;
  Joint fresh() const { return {name_, reduction_.fresh()}; }

  /// Writes configuration and state, for cereal.
  void save(core::OutputArchive& archive) const;
  /// Reads configuration and state, for cereal.
  void load(core::InputArchive& archive);

 private:
  friend struct core::Access;
  std::string recipe() const;

  std::string name_;
  Any reduction_;
  std::int64_t start_ = 0;
};

/// Applies `reduction`, or a callable that folds two tensors, to rows of the sample beside rows of the other
/// tensor.
inline Joint joint(std::string other, Any reduction) {
  return {std::move(other), std::move(reduction)};
}

/// The linear map that predicts the other tensor's rows best from the sample's, of the results of
/// `joint("other", Covariance(CovarianceOptions().over({0})))`: "weight" [E, D] and "bias" [E], float64, as
/// `torch::nn::Linear` has them. If several are best it is the smallest, with features scaled to variance 1.
///
/// Its error grows with the square of the condition number of the sample's features, as with all normal
/// equations. Throws `c10::ValueError` unless there are "mean", "covariance" and one "….start".
TORCHTAP_API core::Results least_squares(const core::Results& joint_covariance);

}  // namespace torchtap::reductions
