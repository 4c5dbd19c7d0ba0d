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
    : OneTensor(extend::Intake("EMA", options.folding()), Order::matters), decay_(options.decay()) {
  TORCH_CHECK_VALUE(decay_ >= 0 && decay_ < 1, "EMA: the decay must be in [0, 1), got ", decay_,
                    "; 0.9 gives the latest sample a weight of 0.1, and Mean weighs all samples equally.");
}

bool EMA::combine_lines(const extend::Lines& lines) {
  lines.each([&](const extend::Memory& row) { extend::decay(row, decay_, value_->data_ptr<double>()); });
  return true;
}

bool EMA::combine_all(const extend::Memory& all) {
  extend::decay_all(all, decay_, value_->data_ptr<double>());
  return true;
}

bool EMA::ask_ledger(extend::Ledger& ledger) const {
  return !intake_.omits() && ledger.ask_decay(intake_, decay_);
}

void EMA::fold_ledger(const extend::Ledger& ledger) {
  const base::RecordingMode quiet;
  const extend::Rows rows = intake_.open(ledger.as_one(intake_.folding()));
  value_ = ledger.decayed(intake_.folding(), decay_).reshape(rows.kept());
  intake_.commit(rows);
}

void EMA::combine_rows(const Pass& /*pass*/, const extend::Rows& rows, c10::ArrayRef<Summary> /*kept*/) {
  const auto dtype = extend::wide_type(rows.view.scalar_type());
  const at::Tensor x = rows.filled(0.0);
  if (value_ && dtype == at::kComplexDouble && !value_->is_complex())
    value_ = extend::own_copy(*value_, dtype);

  if (rows.count == 1 && !rows.finite.defined()) {
    const at::Tensor one = x.reshape(rows.kept());
    if (value_) {
      value_->mul_(decay_).add_(one.to(dtype), 1 - decay_);
    } else {
      value_ = extend::own_copy(one, dtype).mul_(1 - decay_);
    }
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
  value_ = value_ ? at::add(at::mul(*value_, power(decay_, taken)), part) : extend::own_copy(part);
}

void EMA::merge(const EMA& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    value_ = other.value_;
  } else {
    at::Tensor taken = other.intake_.taken();
    if (taken.dim() != 0) taken = taken.to(value_->device());
    value_ = at::add(at::mul(*value_, power(decay_, taken)), other.value_->to(value_->device()));
  }
  intake_.merge(other.intake_);
}

void EMA::assign(const at::Tensor& value) {
  const base::RecordingMode quiet;
  intake_.check_assign(value);
  extend::Intake next = intake_;
  next.assign(value);
  value_ = extend::own_copy(
      at::mul(value.to(extend::wide_type(value.scalar_type())), weight(decay_, next.taken())));
  intake_ = std::move(next);
}

at::Tensor EMA::value() const {
  intake_.require_samples("value");
  const base::RecordingMode quiet;
  return at::div(*value_, weight(decay_, intake_.taken())).to(extend::mean_type(intake_.dtype()));
}

std::string EMA::describe() const {
  return intake_.describe(extend::to_text(decay_));
}

}  // namespace torchtap::reductions
