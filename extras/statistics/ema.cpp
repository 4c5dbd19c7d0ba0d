// Folds samples into an exponential moving average, and merges averages of consecutive streams.

#include <ATen/Functions.h>

#include <cmath>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/extend/loops.hpp>
#include <torchtap/statistics/ema.hpp>

namespace torchtap::reductions {
namespace {

/// decay^n; n is float64 and has dimensions only under `omit`.
at::Tensor power(double decay, const at::Tensor& n) {
  return at::pow(decay, n);
}

/// 1 - decay^n, with all digits also where the decay is nearly 1.
at::Tensor weight(double decay, const at::Tensor& n) {
  return at::mul(n, std::log1p(decay - 1)).expm1_().neg_();
}

}  // namespace

EMA::EMA(EMAOptions options)
    : Reduction(extend::Intake("EMA", options.folding()), Order::matters), decay_(options.decay()) {
  TORCH_CHECK_VALUE(decay_ >= 0 && decay_ < 1, "EMA: the decay must be in [0, 1), got ", decay_,
                    "; 0.9 gives the latest sample a weight of 0.1, and Mean weighs all samples equally.");
}

/// A small sample like those before, without ATen. Returns false for any other sample, and does nothing then.
bool EMA::fold_small(const Pass& pass) {
  if (const auto lines = intake_.lines(pass)) {
    lines->each([&](const extend::Memory& row) { extend::decay(row, decay_, sum_->data_ptr<double>()); });
    intake_.count_rows(lines->rows);
    return true;
  }
  const extend::Memory* const all = intake_.whole(pass);
  if (all == nullptr) return false;
  extend::decay_all(*all, decay_, sum_->data_ptr<double>());
  intake_.count_rows(all->numel);
  return true;
}

bool EMA::ask_ledger(extend::Ledger& ledger) const {
  return !intake_.omits() && ledger.ask_decay(intake_, decay_);
}

void EMA::fold_ledger(const extend::Ledger& ledger) {
  const base::RecordingMode quiet;
  const extend::Rows rows = intake_.open(ledger.as_one(intake_.folding()));
  sum_ = ledger.decayed(intake_.folding(), decay_).reshape(rows.kept());
  intake_.commit(rows);
}

void EMA::fold(const Pass& pass) {
  if (fold_small(pass)) return;
  const base::RecordingMode quiet;
  const at::Tensor& sample = pass.sample();
  const extend::Rows rows = intake_.open(sample);
  if (rows.count == 0) return;
  const auto dtype = extend::wide_type(sample.scalar_type());
  const at::Tensor x = rows.filled(0.0);
  if (sum_ && dtype == at::kComplexDouble && !sum_->is_complex()) sum_ = extend::own_copy(*sum_, dtype);

  if (rows.count == 1 && !rows.finite.defined()) {
    const at::Tensor one = x.reshape(rows.kept());
    if (sum_) {
      sum_->mul_(decay_).add_(one.to(dtype), 1 - decay_);
    } else {
      sum_ = extend::own_copy(one, dtype).mul_(1 - decay_);
    }
    intake_.commit(rows);
    return;
  }
  // The age of a row is the number of rows taken after it, per element.
  const at::Tensor flat = rows.flat(x).to(dtype);
  at::Tensor age, taken;
  if (rows.finite.defined()) {
    const at::Tensor finite = rows.flat(rows.finite).to(at::kDouble);
    age = at::sub(finite.flip({0}).cumsum(0).flip({0}), finite);
    taken = finite.sum(0).reshape(rows.kept());
  } else {
    age = at::arange(rows.count - 1, -1, -1, flat.options().dtype(at::kDouble)).unsqueeze(1);
    taken = at::scalar_tensor(static_cast<double>(rows.count), at::TensorOptions().dtype(at::kDouble));
  }
  const at::Tensor part = at::mul(flat, power(decay_, age)).sum(0).mul_(1 - decay_).reshape(rows.kept());
  sum_ = sum_ ? at::add(at::mul(*sum_, power(decay_, taken)), part) : extend::own_copy(part);
  intake_.commit(rows);
}

void EMA::merge(const EMA& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    sum_ = other.sum_;
  } else {
    at::Tensor taken = other.intake_.taken();
    if (taken.dim() != 0) taken = taken.to(sum_->device());
    sum_ = at::add(at::mul(*sum_, power(decay_, taken)), other.sum_->to(sum_->device()));
  }
  intake_.merge(other.intake_);
}

void EMA::assign(const at::Tensor& value) {
  const base::RecordingMode quiet;
  intake_.check_assign(value);
  extend::Intake next = intake_;
  next.assign(value);
  sum_ = extend::own_copy(
      at::mul(value.to(extend::wide_type(value.scalar_type())), weight(decay_, next.taken())));
  intake_ = std::move(next);
}

at::Tensor EMA::value() const {
  intake_.require_samples("value");
  const base::RecordingMode quiet;
  return at::div(*sum_, weight(decay_, intake_.taken())).to(extend::mean_type(intake_.dtype()));
}

core::Results EMA::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  return intake_.with_omitted({{"value", value()}});
}

std::string EMA::describe() const {
  return intake_.describe(extend::to_text(decay_));
}

EMA EMA::fresh() const {
  EMA fresh{EMAOptions(decay_)};
  fresh.intake_ = intake_.fresh();
  return fresh;
}

}  // namespace torchtap::reductions
