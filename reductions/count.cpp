// Counts kinds of elements from the summary of a small sample, or else with ATen.

#include <ATen/Functions.h>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/detail/device_rows.hpp>
#include <torchtap/reductions/detail/ledger.hpp>
#include <torchtap/reductions/fast/small.hpp>

namespace torchtap::reductions {
namespace {

void add(detail::Owned& total, const at::Tensor& part) {
  if (total) {
    total->add_(part.to(total->device()));
  } else {
    total = detail::own_copy(part, at::kLong);
  }
}

at::Tensor copy_or_zero(const detail::Owned& total) {
  const base::RecordingMode quiet;
  return total ? detail::own_copy(*total) : at::zeros({}, at::TensorOptions().dtype(at::kLong));
}

at::Tensor number(std::int64_t value) {
  return at::full({}, value, at::TensorOptions().dtype(at::kLong));
}

}  // namespace

Count::Count(CountOptions options)
    : Reduction(detail::Intake("Count", options.folding(), detail::Accepts::any, /*any_shape=*/true)) {}

void Count::ask(Pass& pass) const {
  pass.ask_total({/*moments=*/false, /*zeros=*/true});
}

bool Count::ask_ledger(detail::Ledger& ledger) const {
  return ledger.ask_all(intake_);
}

void Count::fold_ledger(const detail::Ledger& ledger) {
  const base::RecordingMode quiet;
  const auto& folding = intake_.folding();
  const Summary total = ledger.total();
  add(nan_, number(total.nan));
  add(inf_, number(total.infinities()));
  add(zeros_, number(total.zeros));
  elements_ += ledger.elements();
  detail::Rows rows = intake_.open(ledger.last());
  rows.count = ledger.rows(folding);
  intake_.commit(rows);
}

void Count::combine_rows(const Pass& pass, const detail::Rows& rows, c10::ArrayRef<Summary> /*kept*/) {
  add_kinds(pass, rows);  // which throws where ATen counts no such numbers
  elements_ += pass.sample().numel();
}

void Count::add_kinds(const Pass& pass, const detail::Rows& rows) {
  const at::Tensor& sample = pass.sample();
  if (const auto total = detail::parts_of(pass).requests.total()) {
    add(nan_, number(total->nan));
    add(inf_, number(total->infinities()));
    return add(zeros_, number(total->zeros));
  }
  if (auto* const kernels = detail::kernels_for(rows)) {
    for (auto* total : {&nan_, &inf_, &zeros_}) {
      if (!*total) *total = at::zeros({}, sample.options().dtype(at::kLong));
    }
    return kernels->count_kinds(detail::device_rows(rows), *nan_, *inf_, *zeros_);
  }
  const auto dtype = sample.scalar_type();
  // In one pass; `eq` makes a tensor of the same length, and sums it as int64.
  const at::Tensor zeros = at::rsub(at::count_nonzero(sample), sample.numel());
  if (c10::isFloatingType(dtype) || c10::isComplexType(dtype)) {
    const at::Tensor nan = at::isnan(sample).sum();
    const at::Tensor inf = at::isinf(sample).sum();
    add(nan_, nan);
    add(inf_, inf);
  } else {
    add(nan_, at::zeros_like(zeros));
    add(inf_, at::zeros_like(zeros));
  }
  add(zeros_, zeros);
}

/// Counts without ATen where the sample was summarised, once there are counters in memory.
void Count::fold(const Pass& pass) {
  const auto rows = intake_.fitting_rows(pass);
  const auto total = rows ? detail::parts_of(pass).requests.total() : std::nullopt;
  if (!total) return Reduction::fold(pass);
  *nan_->data_ptr<std::int64_t>() += total->nan;
  *inf_->data_ptr<std::int64_t>() += total->infinities();
  *zeros_->data_ptr<std::int64_t>() += total->zeros;
  elements_ += detail::parts_of(pass).sample.numel();
  intake_.count_rows(*rows);
}

void Count::merge(const Count& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  add(nan_, *other.nan_);
  add(inf_, *other.inf_);
  add(zeros_, *other.zeros_);
  elements_ += other.elements_;
  intake_.merge(other.intake_);
}

at::Tensor Count::nan() const {
  return copy_or_zero(nan_);
}

at::Tensor Count::inf() const {
  return copy_or_zero(inf_);
}

at::Tensor Count::zeros() const {
  return copy_or_zero(zeros_);
}

core::Results Count::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  return {{"rows", number(rows())},
          {"elements", number(elements_)},
          {"nan", nan()},
          {"inf", inf()},
          {"zeros", zeros()}};
}

Count Count::fresh() const {
  Count fresh;
  fresh.intake_ = intake_.fresh();
  return fresh;
}

void Count::restored() const {
  intake_.check_restored(elements_ >= 0);
  for (const auto* total : {&nan_, &inf_, &zeros_}) {
    intake_.check_restored(
        count() == 0 ? !*total : *total && (*total)->dim() == 0 && (*total)->scalar_type() == at::kLong);
  }
}

}  // namespace torchtap::reductions
