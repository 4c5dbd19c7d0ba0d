// Implements `Sum` and `Mean`.

#include <ATen/Functions.h>

#include <type_traits>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/sum.hpp>

namespace torchtap::reductions {

Total::Total(Kind kind, const char* name, detail::Folding folding)
    : OneTensor(detail::Intake(name, std::move(folding))), kind_(kind) {}

c10::ScalarType Total::kept_type(c10::ScalarType dtype) const {
  return kind_ == Kind::sum ? detail::sum_type(dtype) : detail::wide_type(dtype);
}

bool Total::combine_lines(const detail::Lines& lines) {
  const auto dtype = value_->scalar_type();
  bool added = true;
  lines.each(
      [&](const detail::Memory& row) { added = added && detail::add(row, dtype, value_->data_ptr()); });
  return added;
}

bool Total::combine_all(const detail::Memory& all) {
  if (value_->scalar_type() != at::kLong) return false;
  *value_->data_ptr<std::int64_t>() += detail::sum_integers(all);
  return true;
}

bool Total::combine_summaries(c10::ArrayRef<Summary> kept) {
  const auto type = value_->scalar_type();
  const auto add = [&](auto* sum) {
    using T = std::remove_pointer_t<decltype(sum)>;
    for (const Summary& one : kept) {
      *sum = static_cast<T>(*sum + one.with_non_finite(one.sum));
      ++sum;
    }
  };
  if (type == at::kFloat) {
    add(value_->data_ptr<float>());
  } else if (type == at::kDouble) {
    add(value_->data_ptr<double>());
  } else {
    return false;
  }
  return true;
}

void Total::combine_rows(const Pass& /*pass*/, const detail::Rows& rows, c10::ArrayRef<Summary> kept) {
  const auto dtype = kept_type(rows.view.scalar_type());
  at::Tensor part;
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
  if (value_) {
    const auto promoted = c10::promoteTypes(value_->scalar_type(), dtype);
    if (promoted != value_->scalar_type()) value_ = detail::own_copy(*value_, promoted);
    value_->add_(part);
  } else {
    value_ = detail::own_copy(part, dtype);
  }
}

void Total::merge_from(const Total& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    value_ = other.value_;
  } else {
    value_ = at::add(*value_, other.value_->to(value_->device()));
  }
  intake_.merge(other.intake_);
}

void Total::assign_sum(const at::Tensor& value) {
  set_value(value, kept_type(value.scalar_type()));
}

at::Tensor Total::value() const {
  intake_.require_samples("value");
  const base::RecordingMode quiet;
  if (kind_ == Kind::sum) return detail::own_copy(*value_);
  return at::div(*value_, intake_.taken()).to(detail::mean_type(intake_.dtype()));
}

Sum::Sum(SumOptions options) : Total(Kind::sum, "Sum", options.folding()) {}
Mean::Mean(MeanOptions options) : Total(Kind::mean, "Mean", options.folding()) {}

}  // namespace torchtap::reductions
