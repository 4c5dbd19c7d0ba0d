// Feeds joined rows to a reduction, and computes a least-squares fit from their covariance.

#include <ATen/Functions.h>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/statistics/detail/side_by_side.hpp>
#include <torchtap/statistics/extend/companions.hpp>
#include <torchtap/statistics/joint.hpp>

namespace torchtap::reductions {

Joint::Joint(std::string other, Any reduction) : name_(std::move(other)), reduction_(std::move(reduction)) {
  extend::expect_other_names("reductions::joint", name_, reduction_);
}

void Joint::update(const at::Tensor& sample) {
  std::int64_t start = start_;
  const extend::Beginning beginning("Joint", name_ + ".start", reduction_);
  reduction_.update(statistics::detail::side_by_side("Joint", name_, sample, start));
  beginning.check(reduction_);
  if (count() != 0) start_ = start;  // a sample without rows fixes nothing
}

void Joint::check(const at::Tensor& sample) const {
  std::int64_t start = start_;
  reduction_.check(statistics::detail::side_by_side("Joint", name_, sample, start));
}

void Joint::merge(const Joint& other) {
  TORCH_CHECK_VALUE(name_ == other.name_, "reductions::Joint::merge: cannot merge ", other.describe(),
                    " into ", describe(), "; both must be configured alike.");
  TORCH_CHECK_VALUE(start_ == 0 || other.start_ == 0 || start_ == other.start_,
                    "reductions::Joint::merge: rows of the samples have ", start_, " and ", other.start_,
                    " numbers; both must have as many.");
  reduction_.merge(other.reduction_);
  if (start_ == 0) start_ = other.start_;
}

core::Results Joint::results() const {
  core::Results all = reduction_.results();
  if (!all.empty()) all.set(name_ + ".start", at::scalar_tensor(start_, at::kLong));
  return all;
}

std::string Joint::describe() const {
  return "Joint(" + name_ + ", " + reduction_.describe() + ")";
}

std::vector<std::string> Joint::companions() const {
  auto names = reduction_.companions();
  names.insert(names.begin(), name_);
  return names;
}

std::string Joint::recipe() const {
  return extend::recipe_of("Joint", core::Access::recipe(reduction_));
}

void Joint::save(core::OutputArchive& archive) const {
  core::state_version(archive, "Joint", 1);
  archive(name_, start_);
  reduction_.save(archive);
}

void Joint::load(core::InputArchive& archive) {
  Joint loaded = *this;
  core::state_version(archive, "Joint", 1);
  archive(loaded.name_, loaded.start_);
  loaded.reduction_.load(archive);
  TORCH_CHECK_VALUE(loaded.start_ >= 0, "restore: the archive claims that rows of ", loaded.describe(),
                    " start with ", loaded.start_, " numbers of the sample; it is damaged.");
  extend::expect_other_names("restore", loaded.name_, loaded.reduction_);
  if (loaded.count() == 0) loaded.start_ = 0;  // which samples without rows once set
  *this = std::move(loaded);
}

core::Results least_squares(const core::Results& joint_covariance) {
  const base::RecordingMode quiet;
  const std::string ending = ".start";
  at::Tensor start;
  int starts = 0;
  for (const auto& [name, tensor] : joint_covariance) {
    if (name.size() < ending.size() || name.substr(name.size() - ending.size()) != ending) continue;
    start = tensor;
    ++starts;
  }
  TORCH_CHECK_VALUE(
      starts == 1 && joint_covariance.contains("mean") && joint_covariance.contains("covariance"),
      "reductions::least_squares: expected the results of joint(name, Covariance), with \"mean\", "
      "\"covariance\" and \"NAME.start\", got ",
      joint_covariance, ".");
  const at::Tensor covariance = joint_covariance.at("covariance"), mean = joint_covariance.at("mean");
  TORCH_CHECK_VALUE(start.numel() == 1 && covariance.dim() == 2, "reductions::least_squares: expected ",
                    "one covariance [D, D], got ", covariance.sizes(),
                    "; ask for each key of by() alone: at(key).results().");
  TORCH_CHECK_VALUE(at::isfinite(covariance).all().item<bool>(),
                    "reductions::least_squares: the covariance has numbers that are not finite; it needs two "
                    "rows or more, and NonFinite::omit where NaN or infinities come.");
  const auto d = start.item<std::int64_t>(), e = mean.size(0) - d;
  // With unit variances the matrix is a correlation, so scales do not matter for its inverse.
  const at::Tensor deviation = at::real(covariance.diagonal().narrow(0, 0, d)).sqrt();
  const at::Tensor scale = at::where(deviation.gt(0), deviation.reciprocal(), at::zeros_like(deviation));
  const at::Tensor correlation =
      covariance.narrow(0, 0, d).narrow(1, 0, d).mul(scale.unsqueeze(1)).mul(scale);
  const at::Tensor across = covariance.narrow(0, d, e).narrow(1, 0, d).mul(scale);
  const at::Tensor weight = across.mm(at::linalg_pinv(correlation, 1e-14, /*hermitian=*/true)).mul(scale);
  const at::Tensor bias = mean.narrow(0, d, e).sub(weight.mv(mean.narrow(0, 0, d)));
  return {{"weight", weight}, {"bias", bias}};
}

}  // namespace torchtap::reductions
