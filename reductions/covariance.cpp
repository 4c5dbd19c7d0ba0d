#include <ATen/Functions.h>

#include <algorithm>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/reductions/covariance.hpp>

namespace torchtap::reductions {
namespace {

/// Rows as [rows, D] in wide numbers, those left out zeroed; which are taken, [rows, 1]; and how many.
struct Observations {
  at::Tensor x, mask, taken;
};

Observations observe(const detail::Rows& rows) {
  Observations result;
  result.x = rows.flat(rows.view).to(detail::wide_type(rows.view.scalar_type()));
  const auto real = result.x.options().dtype(at::kDouble);
  if (rows.finite.defined()) {
    result.mask = rows.flat(rows.finite).all(1, /*keepdim=*/true);
    result.x = result.x.masked_fill(result.mask.logical_not(), 0.0);
    result.taken = result.mask.sum().to(at::kDouble);
  } else {
    result.taken = at::full({}, static_cast<double>(rows.count), real);
  }
  return result;
}

/// Adds X^T conj(X) of [rows, D] to a symmetric [D, D]: of the blocks above the diagonal, and below it by
/// symmetry, which saves up to half of the work. Below the blocks' size that gains nothing.
void add_product(at::Tensor& product, const at::Tensor& x) {
  constexpr std::int64_t kBlock = 128;
  const std::int64_t size = x.size(1);
  if (x.is_complex() || size < 2 * kBlock) {
    product.addmm_(x.t(), x.conj());
    return;
  }
  for (std::int64_t i = 0; i < size; i += kBlock) {
    const std::int64_t n = std::min(kBlock, size - i);
    // A block of rows from the diagonal on.
    product.narrow(0, i, n).narrow(1, i, size - i).addmm_(x.narrow(1, i, n).t(), x.narrow(1, i, size - i));
  }
  for (std::int64_t i = 0; i < size; i += kBlock) {
    const std::int64_t n = std::min(kBlock, size - i), rest = size - i - n;
    if (rest == 0) break;
    product.narrow(0, i + n, rest).narrow(1, i, n).copy_(product.narrow(0, i, n).narrow(1, i + n, rest).t());
  }
}

at::Tensor rows_omitted(const detail::Intake& intake, const detail::Owned& taken) {
  intake.require_samples("omitted");
  const core::detail::RecordingMode quiet;
  return at::rsub(*taken, static_cast<double>(intake.count())).to(at::kLong);
}

bool is_square(const detail::Owned& matrix, std::int64_t size) {
  return matrix && matrix->dim() == 2 && matrix->size(0) == size && matrix->size(1) == size;
}

}  // namespace

Covariance::Covariance(CovarianceOptions options)
    : intake_("Covariance", options.folding()), unbiased_(options.unbiased()) {}

void Covariance::update(const at::Tensor& sample) {
  const core::detail::RecordingMode quiet;
  const detail::Rows rows = intake_.open(sample);
  if (rows.count == 0) return;
  const Observations batch = observe(rows);
  const at::Tensor mean = at::div(batch.x.sum(0), batch.taken.clamp_min(1));
  const bool own = batch.x.scalar_type() != sample.scalar_type();
  at::Tensor deviation = own ? at::Tensor(batch.x).sub_(mean) : at::sub(batch.x, mean);
  if (batch.mask.defined()) deviation.masked_fill_(batch.mask.logical_not(), 0.0);
  at::Tensor product = at::zeros({deviation.size(1), deviation.size(1)}, deviation.options());
  add_product(product, deviation);
  if (count() == 0) {
    taken_ = detail::own_copy(batch.taken);
    mean_ = mean;
    product_ = detail::own_copy(product);
  } else {
    combine(batch.taken, mean, product);
  }
  intake_.commit(rows);
}

void Covariance::combine(const at::Tensor& taken, const at::Tensor& mean, const at::Tensor& product) {
  const at::Tensor n = at::add(*taken_, taken);
  const at::Tensor share = at::div(taken, n.clamp_min(1));
  const at::Tensor delta = at::sub(mean, *mean_);
  const at::Tensor between = at::mul(at::outer(delta, delta.conj()), at::mul(*taken_, share));
  const at::Tensor next_mean = at::add(*mean_, at::mul(delta, share));
  product_ = at::add(*product_, product).add_(between);
  mean_ = next_mean;
  taken_ = n;
}

void Covariance::check(const at::Tensor& sample) const {
  const core::detail::RecordingMode quiet;
  (void)intake_.open(sample);
}

void Covariance::merge(const Covariance& other) {
  const core::detail::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    *this = other;
    return;
  }
  const auto device = mean_->device();
  combine(other.taken_->to(device), other.mean_->to(device), other.product_->to(device));
  intake_.merge(other.intake_);
}

at::Tensor Covariance::mean() const {
  intake_.require_samples("mean");
  const core::detail::RecordingMode quiet;
  return detail::own_copy(*mean_);
}

at::Tensor Covariance::covariance() const {
  intake_.require_samples("covariance");
  const core::detail::RecordingMode quiet;
  return at::div(*product_, unbiased_ ? at::sub(*taken_, 1).clamp_min_(0) : *taken_);
}

at::Tensor Covariance::correlation() const {
  intake_.require_samples("correlation");
  const core::detail::RecordingMode quiet;
  const at::Tensor deviation = product_->diagonal().abs().sqrt();
  return at::div(*product_, deviation.unsqueeze(1)).div_(deviation);
}

at::Tensor Covariance::omitted() const {
  return rows_omitted(intake_, taken_);
}

core::Results Covariance::results() const {
  if (count() == 0) return {};
  core::Results state{{"mean", mean()}, {"covariance", covariance()}, {"correlation", correlation()}};
  if (intake_.omits()) state.set("omitted", omitted());
  return state;
}

Covariance Covariance::fresh() const {
  Covariance fresh;
  fresh.intake_ = intake_.fresh();
  fresh.unbiased_ = unbiased_;
  return fresh;
}

void Covariance::restored() const {
  if (count() == 0) return intake_.check_restored(!product_);
  const std::int64_t size = intake_.kept_numel();
  intake_.check_restored(taken_ && taken_->dim() == 0 && mean_ && mean_->dim() == 1 &&
                         mean_->size(0) == size && is_square(product_, size));
}

Gram::Gram(GramOptions options) : intake_("Gram", options.folding()) {}

void Gram::update(const at::Tensor& sample) {
  const core::detail::RecordingMode quiet;
  const detail::Rows rows = intake_.open(sample);
  if (rows.count == 0) return;
  const Observations batch = observe(rows);
  if (count() == 0) {
    product_ = at::zeros({batch.x.size(1), batch.x.size(1)}, batch.x.options());
    add_product(*product_, batch.x.conj());
    taken_ = detail::own_copy(batch.taken);
  } else {
    if (batch.x.is_complex() && !product_->is_complex())
      product_ = detail::own_copy(*product_, at::kComplexDouble);
    add_product(*product_, batch.x.to(product_->scalar_type()).conj());
    taken_->add_(batch.taken);
  }
  intake_.commit(rows);
}

void Gram::check(const at::Tensor& sample) const {
  const core::detail::RecordingMode quiet;
  (void)intake_.open(sample);
}

void Gram::merge(const Gram& other) {
  const core::detail::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    *this = other;
    return;
  }
  product_ = at::add(*product_, other.product_->to(product_->device()));
  taken_ = at::add(*taken_, other.taken_->to(taken_->device()));
  intake_.merge(other.intake_);
}

at::Tensor Gram::value() const {
  intake_.require_samples("value");
  const core::detail::RecordingMode quiet;
  return detail::own_copy(*product_);
}

at::Tensor Gram::omitted() const {
  return rows_omitted(intake_, taken_);
}

core::Results Gram::results() const {
  if (count() == 0) return {};
  core::Results state{{"value", value()}};
  if (intake_.omits()) state.set("omitted", omitted());
  return state;
}

Gram Gram::fresh() const {
  Gram fresh;
  fresh.intake_ = intake_.fresh();
  return fresh;
}

void Gram::restored() const {
  if (count() == 0) return intake_.check_restored(!product_);
  intake_.check_restored(taken_ && taken_->dim() == 0 && is_square(product_, intake_.kept_numel()));
}

}  // namespace torchtap::reductions
