// Folds products of rows into covariance and Gram matrices, and merges them.

#include <ATen/Functions.h>

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/statistics/covariance.hpp>
#include <torchtap/statistics/detail/columns.hpp>

namespace torchtap::statistics::detail {

reductions::CovarianceOptions along_rows(const char* what, reductions::CovarianceOptions options) {
  const bool other = options.folding().over_all ||
                     (!options.over().empty() && options.over() != std::vector<std::int64_t>{0});
  TORCH_CHECK_VALUE(!other, "reductions::", what, ": its rows lie along dimension 0, got ",
                    reductions::extend::Intake("options", options.folding()).describe(),
                    "; leave over() out.");
  return options.over({0});
}

}  // namespace torchtap::statistics::detail

namespace torchtap::reductions {
namespace {

constexpr double kLargest = 0x1p480;  // of whose deviations 2^62 products have a finite sum

/// Leaves out the rows that are not finite.
void leave_out(statistics::detail::Observations& batch, const at::Tensor& finite) {
  batch.mask = finite.all(1, /*keepdim=*/true);
  batch.x = batch.x.masked_fill(batch.mask.logical_not(), 0.0);
  batch.taken = batch.mask.sum().to(at::kDouble);
  batch.own = true;
}

statistics::detail::Observations observe(const at::Tensor& x, bool omits) {
  statistics::detail::Observations batch;
  batch.x = x;
  if (omits) {
    leave_out(batch, at::isfinite(x));
  } else {
    batch.taken = at::full({}, static_cast<double>(x.size(0)), x.options().dtype(at::kDouble));
  }
  return batch;
}

statistics::detail::Observations observe(const extend::Rows& rows) {
  const at::Tensor x = rows.flat(rows.view).to(extend::wide_type(rows.view.scalar_type()));
  statistics::detail::Observations batch = observe(x, /*omits=*/false);
  batch.own = x.scalar_type() != rows.view.scalar_type();
  if (rows.finite.defined()) leave_out(batch, rows.flat(rows.finite));
  return batch;
}

/// Adds X^T conj(X) of [rows, D] to a Hermitian [D, D]. Computes only the blocks on and above the diagonal
/// and mirrors them, which saves up to half of the work. Not worthwhile below the block size.
void add_product(at::Tensor& product, const at::Tensor& x) {
  constexpr std::int64_t kBlock = 128;
  const std::int64_t size = x.size(1);
  if (x.is_complex() || size < 2 * kBlock) {
    product.addmm_(x.t(), x.conj());
    return;
  }
  for (std::int64_t i = 0; i < size; i += kBlock) {
    const std::int64_t n = std::min(kBlock, size - i);
    // The block row, starting at the diagonal.
    product.narrow(0, i, n).narrow(1, i, size - i).addmm_(x.narrow(1, i, n).t(), x.narrow(1, i, size - i));
  }
  for (std::int64_t i = 0; i < size; i += kBlock) {
    const std::int64_t n = std::min(kBlock, size - i), rest = size - i - n;
    if (rest == 0) break;
    product.narrow(0, i + n, rest).narrow(1, i, n).copy_(product.narrow(0, i, n).narrow(1, i + n, rest).t());
  }
}

bool is_square(const extend::Owned& matrix, std::int64_t size) {
  return matrix && matrix->dim() == 2 && matrix->size(0) == size && matrix->size(1) == size;
}

}  // namespace

/// Throws `c10::ValueError` if products of these numbers may be beyond float64.
void ProductOfRows::expect_products(const at::Tensor& x) const {
  if (!x.is_cpu() || x.numel() == 0 || extend::wide_type(x.scalar_type()) != x.scalar_type()) return;
  const base::RecordingMode quiet;
  const at::Tensor parts = (x.is_complex() ? at::view_as_real(x.resolve_conj()) : x).contiguous();
  const auto* const numbers = parts.is_neg() ? nullptr : parts.data_ptr<double>();
  if (numbers != nullptr && !statistics::detail::has_above(numbers, parts.numel(), kLargest)) return;
  const at::Tensor most = at::where(parts.isfinite(), parts.abs(), at::zeros({}, parts.options())).amax();
  if (most.item<double>() <= kLargest) return;
  core::unfit<c10::ValueError>(
      c10::str("reductions::", intake_.name(), "::update: the sample has numbers of ", most.item<double>(),
               ", whose products may be beyond float64; scale them to less than ", kLargest, " first."));
}

void ProductOfRows::check_sample(const Pass& pass) const {
  Reduction::check_sample(pass);
  expect_products(pass.sample());
}

void ProductOfRows::fold(const Pass& pass) {
  const auto lines = intake_.lines(pass);
  bool holds = true;  // numbers of other dtypes are small enough
  if (lines && lines->type == at::kDouble) {
    lines->each([&holds](const extend::Memory& row) {
      holds = holds &&
              !statistics::detail::has_above(reinterpret_cast<const double*>(row.data), row.numel, kLargest);
    });
  }
  if (lines && holds && block_.append(*lines)) {
    settle_if_full(lines->rows);
    intake_.count_rows(lines->rows);
    return;
  }
  const base::RecordingMode quiet;
  const extend::Rows rows = intake_.open(pass.sample());
  if (rows.count == 0) return;
  const at::Tensor x = rows.flat(rows.view);
  expect_products(x);
  if (2 * rows.count >=
      statistics::detail::Block::places(x.size(1))) {  // there would be no room for another one
    take(observe(rows));
  } else {
    if (!block_.fits(rows.count)) settle();
    block_.append(x);
    settle_if_full(rows.count);
  }
  intake_.commit(rows);
}

void ProductOfRows::settle_if_full(std::int64_t appended) {
  if (!block_.full()) return;
  try {
    settle();
  } catch (...) {
    block_.drop(appended);
    throw;
  }
}

void ProductOfRows::settle() {
  if (block_.empty()) return;
  const base::RecordingMode quiet;
  take(observe(block_.held(), intake_.omits()));
  block_.clear();
}

at::Tensor ProductOfRows::omitted() const {
  intake_.require_samples("omitted");
  const base::RecordingMode quiet;
  at::Tensor taken = taken_ ? *taken_ : at::zeros({}, at::kDouble);
  if (!block_.empty()) taken = at::add(taken, observe(block_.held(), intake_.omits()).taken);
  return at::rsub(taken, static_cast<double>(count())).to(at::kLong);
}

Covariance::Covariance(CovarianceOptions options)
    : ProductOfRows(extend::Intake("Covariance", options.folding())), unbiased_(options.unbiased()) {}

void Covariance::take(const statistics::detail::Observations& batch) {
  const at::Tensor mean = at::div(batch.x.sum(0), batch.taken.clamp_min(1));
  const auto dtype =
      product_ ? c10::promoteTypes(product_->scalar_type(), mean.scalar_type()) : mean.scalar_type();
  at::Tensor deviation = (batch.own ? at::Tensor(batch.x).sub_(mean) : at::sub(batch.x, mean)).to(dtype);
  if (batch.mask.defined()) deviation.masked_fill_(batch.mask.logical_not(), 0.0);
  if (!product_) {
    at::Tensor product = at::zeros({deviation.size(1), deviation.size(1)}, deviation.options());
    add_product(product, deviation);
    taken_ = extend::own_copy(batch.taken);
    mean_ = mean;
    product_ = std::move(product);
    return;
  }
  const at::Tensor n = at::add(*taken_, batch.taken);
  const at::Tensor share = at::div(batch.taken, n.clamp_min(1));
  const at::Tensor delta = at::sub(mean, *mean_);
  const at::Tensor between = at::mul(delta, at::mul(*taken_, share).sqrt_()).to(dtype);
  const at::Tensor next_mean = at::add(*mean_, at::mul(delta, share));
  at::Tensor product = product_->scalar_type() == dtype ? *product_ : extend::own_copy(*product_, dtype);
  add_product(product, deviation);
  product.addr_(between, between.conj());
  taken_ = n;
  mean_ = next_mean;
  product_ = std::move(product);
}

/// With the gathered rows folded in.
Covariance Covariance::settled() const {
  Covariance all = *this;
  all.settle();
  return all;
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

void Covariance::merge(const Covariance& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (!other.block_.empty()) return merge(other.settled());
  if (count() == 0) {
    *this = other;
    return;
  }
  settle();
  const auto device = mean_->device();
  combine(other.taken_->to(device), other.mean_->to(device), other.product_->to(device));
  intake_.merge(other.intake_);
}

at::Tensor Covariance::mean() const {
  intake_.require_samples("mean");
  if (!block_.empty()) return settled().mean();
  const base::RecordingMode quiet;
  return extend::own_copy(*mean_);
}

at::Tensor Covariance::covariance() const {
  intake_.require_samples("covariance");
  if (!block_.empty()) return settled().covariance();
  const base::RecordingMode quiet;
  return at::div(*product_, unbiased_ ? at::sub(*taken_, 1).clamp_min_(0) : *taken_);
}

at::Tensor Covariance::correlation() const {
  intake_.require_samples("correlation");
  if (!block_.empty()) return settled().correlation();
  const base::RecordingMode quiet;
  const at::Tensor deviation = product_->diagonal().abs().sqrt();
  return at::div(*product_, deviation.unsqueeze(1)).div_(deviation);
}

core::Results Covariance::results() const {
  if (count() == 0) return {};
  if (!block_.empty()) return settled().results();
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
  if (count() == 0) return intake_.check_restored(!product_ && block_.empty());
  const std::int64_t size = intake_.kept_numel();
  intake_.check_restored(block_.is_sound(size) && block_.rows() <= count());
  if (block_.rows() == count()) return intake_.check_restored(!taken_ && !mean_ && !product_);
  intake_.check_restored(taken_ && taken_->dim() == 0 && mean_ && mean_->dim() == 1 &&
                         mean_->size(0) == size && is_square(product_, size));
}

Gram::Gram(GramOptions options) : ProductOfRows(extend::Intake("Gram", options.folding())) {}

void Gram::take(const statistics::detail::Observations& batch) {
  if (!product_) {
    at::Tensor product = at::zeros({batch.x.size(1), batch.x.size(1)}, batch.x.options());
    add_product(product, batch.x.conj());
    taken_ = extend::own_copy(batch.taken);
    product_ = std::move(product);
    return;
  }
  const auto dtype = c10::promoteTypes(product_->scalar_type(), batch.x.scalar_type());
  at::Tensor product = product_->scalar_type() == dtype ? *product_ : extend::own_copy(*product_, dtype);
  const at::Tensor taken = at::add(*taken_, batch.taken);
  add_product(product, batch.x.to(dtype).conj());
  product_ = std::move(product);
  taken_ = taken;
}

/// With the gathered rows folded in.
Gram Gram::settled() const {
  Gram all = *this;
  all.settle();
  return all;
}

void Gram::merge(const Gram& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (!other.block_.empty()) return merge(other.settled());
  if (count() == 0) {
    *this = other;
    return;
  }
  settle();
  product_ = at::add(*product_, other.product_->to(product_->device()));
  taken_ = at::add(*taken_, other.taken_->to(taken_->device()));
  intake_.merge(other.intake_);
}

at::Tensor Gram::value() const {
  intake_.require_samples("value");
  if (!block_.empty()) return settled().value();
  const base::RecordingMode quiet;
  return extend::own_copy(*product_);
}

core::Results Gram::results() const {
  if (count() == 0) return {};
  if (!block_.empty()) return settled().results();
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
  if (count() == 0) return intake_.check_restored(!product_ && block_.empty());
  const std::int64_t size = intake_.kept_numel();
  intake_.check_restored(block_.is_sound(size) && block_.rows() <= count());
  if (block_.rows() == count()) return intake_.check_restored(!taken_ && !product_);
  intake_.check_restored(taken_ && taken_->dim() == 0 && is_square(product_, size));
}

}  // namespace torchtap::reductions
