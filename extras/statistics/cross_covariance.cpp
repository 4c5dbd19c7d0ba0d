// Folds the rows of two tensors into their cross-covariance, and merges cross-covariances.

#include <ATen/Functions.h>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/statistics/cross_covariance.hpp>
#include <torchtap/statistics/detail/side_by_side.hpp>

namespace torchtap::reductions {

CrossCovariance::CrossCovariance(std::string other, CovarianceOptions options)
    : ProductOfRows(extend::Intake("CrossCovariance",
                                   statistics::detail::along_rows("CrossCovariance", options).folding())),
      name_(std::move(other)),
      unbiased_(options.unbiased()) {}

void CrossCovariance::check_sample(const Pass& pass) const {
  std::int64_t start = start_;
  const at::Tensor rows = statistics::detail::side_by_side("CrossCovariance", name_, pass.sample(), start);
  ProductOfRows::check_sample(Pass(rows));
}

void CrossCovariance::fold(const Pass& pass) {
  std::int64_t start = start_;
  const at::Tensor rows = statistics::detail::side_by_side("CrossCovariance", name_, pass.sample(), start);
  std::swap(start, start_);
  try {
    ProductOfRows::fold(Pass(rows));
  } catch (...) {
    start_ = start;
    throw;
  }
  if (count() == 0) start_ = start;  // a sample without rows fixes nothing
}

/// The step between the means is one more row of the product, which so costs no pass over D × E numbers.
void CrossCovariance::take(const statistics::detail::Observations& batch) {
  const std::int64_t rows = batch.x.size(0), all = batch.x.size(1);
  const at::Tensor mean = at::div(batch.x.sum(0), batch.taken.clamp_min(1));
  const auto dtype =
      product_ ? c10::promoteTypes(product_->scalar_type(), mean.scalar_type()) : mean.scalar_type();
  at::Tensor deviation = at::zeros({rows + 1, all}, batch.x.options().dtype(dtype));
  at::Tensor within = deviation.narrow(0, 0, rows);
  within.copy_(batch.x).sub_(mean);
  if (batch.mask.defined()) within.masked_fill_(batch.mask.logical_not(), 0.0);
  at::Tensor taken = batch.taken, next_mean = mean;
  if (product_) {
    taken = at::add(*taken_, batch.taken);
    const at::Tensor share = at::div(batch.taken, taken.clamp_min(1));
    const at::Tensor delta = at::sub(mean, *mean_);
    deviation.select(0, rows).copy_(at::mul(delta, at::mul(*taken_, share).sqrt_()));
    next_mean = at::add(*mean_, at::mul(delta, share));
  }
  at::Tensor squares = deviation.abs().square_().sum(0);
  if (squares_) squares.add_(*squares_);
  at::Tensor product;
  if (!product_) {
    product = at::zeros({start_, all - start_}, deviation.options());
  } else {
    product = product_->scalar_type() == dtype ? *product_ : extend::own_copy(*product_, dtype);
  }
  product.addmm_(deviation.narrow(1, 0, start_).t(), deviation.narrow(1, start_, all - start_).conj());
  taken_ = extend::own_copy(taken);
  mean_ = next_mean;
  squares_ = std::move(squares);
  product_ = std::move(product);
}

/// With the gathered rows folded in.
CrossCovariance CrossCovariance::settled() const {
  CrossCovariance all = *this;
  all.settle();
  return all;
}

void CrossCovariance::merge(const CrossCovariance& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  TORCH_CHECK_VALUE(name_ == other.name_ && (count() == 0 || other.count() == 0 || start_ == other.start_),
                    "reductions::CrossCovariance::merge: cannot merge ", other.describe(), " with ",
                    other.start_, " features of the sample into ", describe(), " with ", start_,
                    "; both must be alike.");
  if (other.count() == 0) return;
  if (!other.block_.empty()) return merge(other.settled());
  if (count() == 0) {
    *this = other;
    return;
  }
  settle();
  const auto device = mean_->device();
  const at::Tensor taken = other.taken_->to(device), delta = at::sub(other.mean_->to(device), *mean_);
  const at::Tensor n = at::add(*taken_, taken);
  const at::Tensor share = at::div(taken, n.clamp_min(1)), weight = at::mul(*taken_, share);
  const at::Tensor between = at::outer(delta.slice(0, 0, start_), delta.slice(0, start_).conj()).mul_(weight);
  squares_ = at::add(*squares_, other.squares_->to(device)).add_(delta.abs().square_().mul_(weight));
  product_ = at::add(*product_, other.product_->to(device)).add_(between);
  mean_ = at::add(*mean_, at::mul(delta, share));
  taken_ = n;
  intake_.merge(other.intake_);
}

at::Tensor CrossCovariance::over_rows(const at::Tensor& sums) const {
  return at::div(sums, unbiased_ ? at::sub(*taken_, 1).clamp_min_(0) : *taken_);
}

at::Tensor CrossCovariance::covariance() const {
  intake_.require_samples("covariance");
  if (!block_.empty()) return settled().covariance();
  const base::RecordingMode quiet;
  return over_rows(*product_);
}

at::Tensor CrossCovariance::correlation() const {
  intake_.require_samples("correlation");
  if (!block_.empty()) return settled().correlation();
  const base::RecordingMode quiet;
  const at::Tensor deviation = squares_->sqrt();
  return at::div(*product_, deviation.slice(0, 0, start_).unsqueeze(1)).div_(deviation.slice(0, start_));
}

core::Results CrossCovariance::results() const {
  if (count() == 0) return {};
  if (!block_.empty()) return settled().results();
  const base::RecordingMode quiet;
  const at::Tensor mean = extend::own_copy(*mean_), variance = over_rows(*squares_);
  core::Results all{{"mean", mean.slice(0, 0, start_).clone()},
                    {"variance", variance.slice(0, 0, start_).clone()},
                    {name_ + ".mean", mean.slice(0, start_).clone()},
                    {name_ + ".variance", variance.slice(0, start_).clone()},
                    {"covariance", covariance()},
                    {"correlation", correlation()}};
  if (intake_.omits()) all.set("omitted", omitted());
  return all;
}

std::string CrossCovariance::describe() const {
  return intake_.describe(unbiased_ ? name_ : name_ + ", biased");
}

CrossCovariance CrossCovariance::fresh() const {
  CrossCovariance fresh(name_);
  fresh.intake_ = intake_.fresh();
  fresh.unbiased_ = unbiased_;
  return fresh;
}

void CrossCovariance::restored() {
  if (count() == 0) {
    intake_.check_restored(!product_ && block_.empty() && start_ >= 0);
    start_ = 0;  // which samples without rows once set
    return;
  }
  const std::int64_t size = intake_.kept_numel();
  intake_.check_restored(start_ >= 0 && start_ <= size && block_.is_sound(size) && block_.rows() <= count());
  if (block_.rows() == count()) return intake_.check_restored(!taken_ && !mean_ && !squares_ && !product_);
  intake_.check_restored(taken_ && taken_->dim() == 0 && mean_ && mean_->dim() == 1 &&
                         mean_->size(0) == size && squares_ && squares_->dim() == 1 &&
                         squares_->size(0) == size && product_ && product_->dim() == 2 &&
                         product_->size(0) == start_ && product_->size(1) == size - start_);
}

}  // namespace torchtap::reductions
