// Implements `Min`, `Max` and `AbsMax`.

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <torchtap/base/magnitude.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/abs_max.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/min.hpp>

namespace torchtap::reductions {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}

Extremum::Extremum(Kind kind, const char* name, detail::Folding folding)
    : OneTensor(detail::Intake(name, std::move(folding),
                               kind == Kind::abs_max ? detail::Accepts::any : detail::Accepts::real)),
      kind_(kind) {}

double Extremum::identity() const {
  return kind_ == Kind::min ? kInfinity : -kInfinity;
}

at::Tensor Extremum::of(const detail::Rows& rows) const {
  at::Tensor x = rows.view;
  if (kind_ == Kind::abs_max) {
    const bool integral = c10::isIntegralType(x.scalar_type(), /*includeBool=*/true);
    // abs(int8(-128)) would be -128; bool has no abs
    x = x.is_complex() ? base::magnitude(x) : at::abs(integral ? x.to(at::kLong) : x);
  }
  if (rows.finite.defined()) x = x.masked_fill(rows.finite.logical_not(), identity());
  if (rows.count == 1) return x.reshape(rows.kept());
  return kind_ == Kind::min ? at::amin(x, rows.folded) : at::amax(x, rows.folded);
}

void Extremum::take(const at::Tensor& value) {
  const auto promoted = c10::promoteTypes(value_->scalar_type(), value.scalar_type());
  if (promoted != value_->scalar_type()) value_ = detail::own_copy(*value_, promoted);
  if (kind_ == Kind::min) {
    at::minimum_out(*value_, *value_, value);
  } else {
    at::maximum_out(*value_, *value_, value);
  }
}

double Extremum::of(const Summary& one) const {
  const bool all = !intake_.omits();
  if (all && one.nan != 0) return std::numeric_limits<double>::quiet_NaN();
  const double min = all && one.negative_infinities != 0 ? -kInfinity : one.min;
  const double max = all && one.positive_infinities != 0 ? kInfinity : one.max;
  switch (kind_) {
    case Kind::min:
      return min;
    case Kind::max:
      return max;
    case Kind::abs_max:
      return min > max ? identity() : std::max(std::abs(min), std::abs(max));
  }
  return 0.0;
}

/// The state has another dtype than its samples after `assign`.
bool Extremum::is_state_of_samples() const {
  const auto type = intake_.dtype();
  const bool wide = kind_ == Kind::abs_max && c10::isIntegralType(type, /*includeBool=*/true);
  return value_->scalar_type() == (wide ? at::kLong : type) && value_->device().is_cpu();
}

bool Extremum::combine_lines(const detail::Lines& lines) {
  if (!is_state_of_samples()) return false;
  lines.each([&](const detail::Memory& row) { detail::take_extreme(row, kind_, value_->data_ptr()); });
  return true;
}

bool Extremum::combine_all(const detail::Memory& all) {
  if (c10::isFloatingType(all.type) || !is_state_of_samples()) return false;
  detail::take_extreme(detail::extreme_integer(all, kind_), value_->scalar_type(), kind_, value_->data_ptr());
  return true;
}

bool Extremum::combine_summaries(c10::ArrayRef<Summary> kept) {
  const auto type = intake_.dtype();
  if (!c10::isFloatingType(type) || !is_state_of_samples()) return false;
  auto* state = static_cast<char*>(value_->data_ptr());
  for (const Summary& one : kept) {
    detail::take_extreme(of(one), type, kind_, state);
    state += value_->element_size();
  }
  return true;
}

void Extremum::combine_rows(const Pass& /*pass*/, const detail::Rows& rows, c10::ArrayRef<Summary> kept) {
  const auto type = rows.view.scalar_type();
  const bool summarized = !kept.empty() && c10::isFloatingType(type);
  const at::Tensor part =
      summarized ? detail::tabulate(rows.kept(), kept, [&](const Summary& one) { return of(one); }).to(type)
                 : of(rows);
  if (value_) {
    take(part);
  } else {
    value_ = detail::own_copy(part);
  }
}

void Extremum::merge_from(const Extremum& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    value_ = other.value_;
  } else {
    take(other.value_->to(value_->device()));
  }
  intake_.merge(other.intake_);
}

at::Tensor Extremum::value() const {
  intake_.require_samples("value");
  const base::RecordingMode quiet;
  if (!intake_.omits() || !c10::isFloatingType(value_->scalar_type())) return detail::own_copy(*value_);
  return value_->masked_fill(at::eq(intake_.taken(), 0), std::numeric_limits<double>::quiet_NaN());
}

Min::Min(MinOptions options) : Extremum(Kind::min, "Min", options.folding()) {}
Max::Max(MaxOptions options) : Extremum(Kind::max, "Max", options.folding()) {}
AbsMax::AbsMax(AbsMaxOptions options) : Extremum(Kind::abs_max, "AbsMax", options.folding()) {}

}  // namespace torchtap::reductions
