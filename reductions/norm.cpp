// Folds samples into sums of powers of magnitudes, and merges the sums.

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/detail/ledger.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/norm.hpp>

namespace torchtap::reductions {

Norm::Norm(NormOptions options) : OneTensor(detail::Intake("Norm", options.folding())), p_(options.p()) {
  TORCH_CHECK_VALUE(p_ > 0, "Norm: p must be positive or infinity, got ", p_,
                    "; use Count to count zeros, and map(abs, Min()) for the smallest magnitude.");
}

void Norm::take(const at::Tensor& part) {
  if (!value_) {
    value_ = detail::own_copy(part);
  } else if (std::isinf(p_)) {
    at::maximum_out(*value_, *value_, part);
  } else {
    value_->add_(part);
  }
}

/// Whether a summary has the sum of powers for this p.
bool Norm::asks() const {
  return p_ == 2 || std::isinf(p_);
}

std::optional<Needs> Norm::needs() const {
  if (!asks()) return std::nullopt;
  return Needs{/*moments=*/p_ == 2, /*zeros=*/false};
}

double Norm::of(const Summary& one) const {
  const bool omits = intake_.omits();
  if (!omits && one.nan != 0) return std::numeric_limits<double>::quiet_NaN();
  if (!omits && one.infinities() != 0) return std::numeric_limits<double>::infinity();
  if (p_ == 2) return one.m2 + static_cast<double>(one.taken) * one.mean * one.mean;
  return one.taken == 0 ? 0.0 : std::max(std::abs(one.min), std::abs(one.max));
}

bool Norm::ask_ledger(detail::Ledger& ledger) const {
  return asks() ? Reduction::ask_ledger(ledger) : ledger.ask_power(intake_, p_);
}

void Norm::fold_ledger(const detail::Ledger& ledger) {
  if (asks()) return Reduction::fold_ledger(ledger);
  const base::RecordingMode quiet;
  const at::Tensor all = ledger.as_one(intake_.folding()), powers = ledger.powers(intake_.folding(), p_);
  const auto kept = ledger.summaries(intake_.folding());
  const detail::Rows rows = intake_.open(all, kept);
  const double* power = powers.data_ptr<double>();
  take(detail::tabulate(rows.kept(), kept, [&](const Summary& one) {
    const double sum = *power++;
    if (intake_.omits()) return sum;
    return one.nan != 0            ? std::numeric_limits<double>::quiet_NaN()
           : one.infinities() != 0 ? std::numeric_limits<double>::infinity()
                                   : sum;
  }));
  intake_.commit(rows);
}

bool Norm::combine_lines(const detail::Lines& lines) {
  lines.each([&](const detail::Memory& row) { detail::add_power(row, p_, value_->data_ptr<double>()); });
  return true;
}

bool Norm::combine_all(const detail::Memory& all) {
  if (asks()) return false;
  *value_->data_ptr<double>() += detail::sum_of_powers(all, p_);
  return true;
}

bool Norm::combine_summaries(c10::ArrayRef<Summary> kept) {
  if (!asks()) return false;  // others did
  double* sum = value_->data_ptr<double>();
  for (const Summary& one : kept) {
    const double part = of(one);
    if (!std::isinf(p_)) {
      *sum += part;
    } else if (part > *sum || std::isnan(part)) {
      *sum = part;
    }
    ++sum;
  }
  return true;
}

void Norm::combine_rows(const Pass& /*pass*/, const detail::Rows& rows, c10::ArrayRef<Summary> kept) {
  if (!kept.empty())
    return take(detail::tabulate(rows.kept(), kept, [&](const Summary& one) { return of(one); }));
  const at::Tensor x = rows.filled(0.0).to(detail::wide_type(rows.view.scalar_type()));
  if (std::isinf(p_)) {
    take(rows.count == 1 ? x.abs().reshape(rows.kept()) : at::amax(x.abs(), rows.folded));
  } else if (p_ == 1) {
    take(rows.sum(x.abs(), at::kDouble));
  } else if (p_ == 2 && !x.is_complex()) {
    take(rows.sum(x.square(), at::kDouble));
  } else {
    take(rows.sum(x.abs().pow_(p_), at::kDouble));
  }
}

void Norm::merge(const Norm& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  take(count() == 0 ? *other.value_ : other.value_->to(value_->device()));
  intake_.merge(other.intake_);
}

at::Tensor Norm::value() const {
  intake_.require_samples("value");
  const base::RecordingMode quiet;
  const auto dtype = c10::toRealValueType(detail::mean_type(intake_.dtype()));
  if (std::isinf(p_) || p_ == 1) return detail::own_copy(*value_, dtype);
  return (p_ == 2 ? value_->sqrt() : value_->pow(1 / p_)).to(dtype);
}

std::string Norm::describe() const {
  return intake_.describe(detail::to_text(p_));
}

}  // namespace torchtap::reductions
