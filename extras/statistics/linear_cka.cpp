// Computes linear CKA from the covariance of joined rows.

#include <ATen/Functions.h>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/statistics/linear_cka.hpp>

namespace torchtap::reductions {

LinearCKA::LinearCKA(std::string other, CovarianceOptions options)
    : joint_(std::move(other), Covariance(statistics::detail::along_rows("LinearCKA", std::move(options)))) {}

const Covariance& LinearCKA::covariance() const {
  return *joint_.inner().get<Covariance>();
}

at::Tensor LinearCKA::value() const {
  const base::RecordingMode quiet;
  at::Tensor all = covariance().covariance();
  if (all.numel() != 0) {  // the squares of large ones would not be numbers
    const at::Tensor most = all.abs().amax(), one = at::ones_like(most);
    all = all.mul(at::where(most.gt(0x1p400), one.mul(0x1p-480), one));
  }
  const std::int64_t d = joint_.start(), e = all.size(0) - d;
  const auto norm = [&](std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    return all.narrow(0, row, rows).narrow(1, column, columns).norm().to(at::kDouble);
  };
  return norm(0, d, d, e).square().div(norm(0, d, 0, d).mul(norm(d, e, d, e)));
}

core::Results LinearCKA::results() const {
  if (count() == 0) return {};
  core::Results all{{"value", value()}};
  const core::Results inner = joint_.results();
  if (inner.contains("omitted")) all.set("omitted", inner.at("omitted"));
  return all;
}

std::string LinearCKA::describe() const {
  return "LinearCKA(" + joint_.companions().front() + ")";
}

LinearCKA LinearCKA::fresh() const {
  LinearCKA fresh = *this;
  fresh.joint_ = joint_.fresh();
  return fresh;
}

void LinearCKA::save(core::OutputArchive& archive) const {
  core::state_version(archive, "LinearCKA", 1);
  joint_.save(archive);
}

void LinearCKA::load(core::InputArchive& archive) {
  core::state_version(archive, "LinearCKA", 1);
  Joint loaded = joint_;
  loaded.load(archive);
  const auto* const covariance = loaded.inner().get<Covariance>();
  TORCH_CHECK_VALUE(loaded.count() == 0 || loaded.start() <= covariance->mean().numel(),
                    "restore: the archive claims ", loaded.start(), " features of the sample in rows of ",
                    covariance->mean().numel(), "; it is damaged.");
  joint_ = std::move(loaded);
}

}  // namespace torchtap::reductions
