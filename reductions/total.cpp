// Implements `Sum` and `Mean`.

#include <ATen/Functions.h>

#include <type_traits>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/detail/ledger.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/sum.hpp>

namespace torchtap::reductions {

Total::Total(Kind kind, const char* name, detail::Folding folding)
    : Reduction(detail::Intake(name, std::move(folding))), kind_(kind) {}

c10::ScalarType Total::kept_type(c10::ScalarType dtype) const {
  return kind_ == Kind::sum ? detail::sum_type(dtype) : detail::wide_type(dtype);
}

void Total::ask(Pass& pass) const {
  ask_rows(pass, {});
}

bool Total::ask_ledger(detail::Ledger& ledger) const {
  return ledger.ask(intake_, {});
}

void Total::fold(const Pass& pass) {
  if (fold_small(pass)) return;
  const base::RecordingMode quiet;
  const detail::Rows rows = intake_.open(pass);
  if (rows.count == 0) return;
  const auto dtype = kept_type(rows.view.scalar_type());
  at::Tensor part;
  const auto kept = detail::kernels_of(pass).answer(intake_.folding());
  if (!kept.empty() && dtype != at::kLong) {
    const bool omits = intake_.omits();
    part = detail::tabulate(rows.kept(), kept, [&](const Summary& one) {
      return omits ? one.sum : one.with_non_finite(one.sum);
    });
  } else {
    const at::Tensor taken = rows.filled(0.0);
    // A single row is added as it is: add_ converts on the fly, without a temporary.
    part = rows.count == 1 ? taken.reshape(rows.kept()) : rows.sum(taken, dtype);
  }
  if (sum_) {
    const auto promoted = c10::promoteTypes(sum_->scalar_type(), dtype);
    if (promoted != sum_->scalar_type()) sum_ = detail::own_copy(*sum_, promoted);
    sum_->add_(part);
  } else {
    sum_ = detail::own_copy(part, dtype);
  }
  intake_.commit(rows);
}

/// A sample like those before, if it is small or was summarised, without ATen. Returns false for any other
/// sample, and does nothing then.
bool Total::fold_small(const Pass& pass) {
  if (const auto lines = intake_.lines(pass)) {
    const auto dtype = sum_->scalar_type();
    bool added = true;
    lines->each(
        [&](const detail::Memory& row) { added = added && detail::add(row, dtype, sum_->data_ptr()); });
    if (added) intake_.count_rows(lines->rows);
    return added;
  }
  const auto rows = intake_.fitting_rows(pass);
  if (!rows) return false;
  const auto type = sum_->scalar_type();
  if (type == at::kLong) {
    const detail::Memory* const all = intake_.whole(pass);
    if (all == nullptr) return false;
    *sum_->data_ptr<std::int64_t>() += detail::sum_integers(*all);
  } else {
    const auto kept = detail::kernels_of(pass).answer(intake_.folding());
    if (kept.empty() || (type != at::kFloat && type != at::kDouble)) return false;
    const auto add = [&](auto* sum) {
      using T = std::remove_pointer_t<decltype(sum)>;
      for (const Summary& one : kept) {
        *sum = static_cast<T>(*sum + one.with_non_finite(one.sum));
        ++sum;
      }
    };
    if (type == at::kFloat) {
      add(sum_->data_ptr<float>());
    } else {
      add(sum_->data_ptr<double>());
    }
  }
  intake_.count_rows(*rows);
  return true;
}

void Total::merge_from(const Total& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    sum_ = other.sum_;
  } else {
    sum_ = at::add(*sum_, other.sum_->to(sum_->device()));
  }
  intake_.merge(other.intake_);
}

void Total::assign_sum(const at::Tensor& value) {
  const base::RecordingMode quiet;
  intake_.check_assign(value);
  sum_ = detail::own_copy(value, kept_type(value.scalar_type()));
  intake_.assign(value);
}

at::Tensor Total::value() const {
  intake_.require_samples("value");
  const base::RecordingMode quiet;
  if (kind_ == Kind::sum) return detail::own_copy(*sum_);
  return at::div(*sum_, intake_.taken()).to(detail::mean_type(intake_.dtype()));
}

core::Results Total::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  return intake_.with_omitted({{"value", value()}});
}

void Total::clear() {
  intake_ = intake_.fresh();
  sum_ = detail::Owned();
}

Sum::Sum(SumOptions options) : Total(Kind::sum, "Sum", options.folding()) {}
Mean::Mean(MeanOptions options) : Total(Kind::mean, "Mean", options.folding()) {}

}  // namespace torchtap::reductions
