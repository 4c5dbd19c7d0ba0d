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

Norm::Norm(NormOptions options) : Reduction(detail::Intake("Norm", options.folding())), p_(options.p()) {
  TORCH_CHECK_VALUE(p_ > 0, "Norm: p must be positive or infinity, got ", p_,
                    "; use Count to count zeros, and map(abs, Min()) for the smallest magnitude.");
}

void Norm::take(const at::Tensor& part) {
  if (!sum_) {
    sum_ = detail::own_copy(part);
  } else if (std::isinf(p_)) {
    at::maximum_out(*sum_, *sum_, part);
  } else {
    sum_->add_(part);
  }
}

/// Whether a summary has the sum of powers for this p.
bool Norm::asks() const {
  return p_ == 2 || std::isinf(p_);
}

void Norm::ask(Pass& pass) const {
  if (asks()) ask_rows(pass, {/*moments=*/p_ == 2, /*zeros=*/false});
}

double Norm::of(const Summary& one) const {
  const bool omits = intake_.omits();
  if (!omits && one.nan != 0) return std::numeric_limits<double>::quiet_NaN();
  if (!omits && one.infinities() != 0) return std::numeric_limits<double>::infinity();
  if (p_ == 2) return one.m2 + static_cast<double>(one.taken) * one.mean * one.mean;
  return one.taken == 0 ? 0.0 : std::max(std::abs(one.min), std::abs(one.max));
}

bool Norm::ask_ledger(detail::Ledger& ledger) const {
  return asks() ? ledger.ask(intake_, {/*moments=*/p_ == 2, /*zeros=*/false}) : ledger.ask_power(intake_, p_);
}

void Norm::fold_ledger(const detail::Ledger& ledger) {
  if (asks()) return Reduction::fold_ledger(ledger);
  const base::RecordingMode quiet;
  const at::Tensor all = ledger.as_one(intake_.folding()), powers = ledger.powers(intake_.folding(), p_);
  const Pass pass(all, ledger);
  const detail::Rows rows = intake_.open(pass);
  const double* power = powers.data_ptr<double>();
  take(detail::tabulate(rows.kept(), ledger.summaries(intake_.folding()), [&](const Summary& one) {
    const double sum = *power++;
    if (intake_.omits()) return sum;
    return one.nan != 0            ? std::numeric_limits<double>::quiet_NaN()
           : one.infinities() != 0 ? std::numeric_limits<double>::infinity()
                                   : sum;
  }));
  intake_.commit(rows);
}

void Norm::fold(const Pass& pass) {
  if (fold_small(pass)) return;
  const base::RecordingMode quiet;
  const at::Tensor& sample = pass.sample();
  const auto kept = asks() ? detail::kernels_of(pass).answer(intake_.folding()) : c10::ArrayRef<Summary>();
  const detail::Rows rows = kept.empty() ? intake_.open(sample) : intake_.open(pass);
  if (rows.count == 0) return;
  if (!kept.empty()) {
    take(detail::tabulate(rows.kept(), kept, [&](const Summary& one) { return of(one); }));
    return intake_.commit(rows);
  }
  const at::Tensor x = rows.filled(0.0).to(detail::wide_type(sample.scalar_type()));
  if (std::isinf(p_)) {
    take(rows.count == 1 ? x.abs().reshape(rows.kept()) : at::amax(x.abs(), rows.folded));
  } else if (p_ == 1) {
    take(rows.sum(x.abs(), at::kDouble));
  } else if (p_ == 2 && !x.is_complex()) {
    take(rows.sum(x.square(), at::kDouble));
  } else {
    take(rows.sum(x.abs().pow_(p_), at::kDouble));
  }
  intake_.commit(rows);
}

/// A sample like those before, if it is small or was summarised, without ATen. Returns false for any other
/// sample, and does nothing then.
bool Norm::fold_small(const Pass& pass) {
  if (const auto lines = intake_.lines(pass)) {
    lines->each([&](const detail::Memory& row) { detail::add_power(row, p_, sum_->data_ptr<double>()); });
    intake_.count_rows(lines->rows);
    return true;
  }
  const auto rows = intake_.fitting_rows(pass);
  if (!rows) return false;
  double* sum = sum_->data_ptr<double>();
  if (asks()) {
    const auto kept = detail::kernels_of(pass).answer(intake_.folding());
    if (kept.empty()) return false;
    for (const Summary& one : kept) {
      const double part = of(one);
      if (!std::isinf(p_)) {
        *sum += part;
      } else if (part > *sum || std::isnan(part)) {
        *sum = part;
      }
      ++sum;
    }
  } else {
    const detail::Memory* const all = intake_.whole(pass);
    if (all == nullptr) return false;
    *sum += detail::sum_of_powers(*all, p_);
  }
  intake_.count_rows(*rows);
  return true;
}

void Norm::merge(const Norm& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  take(count() == 0 ? *other.sum_ : other.sum_->to(sum_->device()));
  intake_.merge(other.intake_);
}

at::Tensor Norm::value() const {
  intake_.require_samples("value");
  const base::RecordingMode quiet;
  const auto dtype = c10::toRealValueType(detail::mean_type(intake_.dtype()));
  if (std::isinf(p_) || p_ == 1) return detail::own_copy(*sum_, dtype);
  return (p_ == 2 ? sum_->sqrt() : sum_->pow(1 / p_)).to(dtype);
}

core::Results Norm::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  return intake_.with_omitted({{"value", value()}});
}

std::string Norm::describe() const {
  return intake_.describe(detail::to_text(p_));
}

Norm Norm::fresh() const {
  Norm fresh(NormOptions().p(p_));
  fresh.intake_ = intake_.fresh();
  return fresh;
}

}  // namespace torchtap::reductions
