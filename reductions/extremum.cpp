// Implements `Min`, `Max` and `AbsMax`.

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <torchtap/base/magnitude.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/abs_max.hpp>
#include <torchtap/reductions/detail/infinity.hpp>
#include <torchtap/reductions/detail/ledger.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/min.hpp>

namespace torchtap::reductions {
namespace {

using detail::kInfinity;

}

Extremum::Extremum(Kind kind, const char* name, detail::Folding folding)
    : Reduction(detail::Intake(name, std::move(folding),
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

void Extremum::ask(Pass& pass) const {
  ask_rows(pass, {});
}

bool Extremum::ask_ledger(detail::Ledger& ledger) const {
  return ledger.ask(intake_, {});
}

void Extremum::fold(const Pass& pass) {
  if (fold_small(pass)) return;
  const base::RecordingMode quiet;
  const detail::Rows rows = intake_.open(pass);
  if (rows.count == 0) return;
  at::Tensor part;
  const auto kept = detail::kernels_of(pass).answer(intake_.folding());
  if (!kept.empty() && c10::isFloatingType(rows.view.scalar_type())) {
    part = detail::tabulate(rows.kept(), kept, [&](const Summary& one) {
             return of(one);
           }).to(rows.view.scalar_type());
  } else {
    part = of(rows);
  }
  if (value_) {
    take(part);
  } else {
    value_ = detail::own_copy(part);
  }
  intake_.commit(rows);
}

/// A sample like those before, if it is small or was summarised, without ATen. Returns false for any other
/// sample, and does nothing then.
bool Extremum::fold_small(const Pass& pass) {
  const auto which = kind_ == Kind::min   ? detail::Extreme::min
                     : kind_ == Kind::max ? detail::Extreme::max
                                          : detail::Extreme::abs_max;
  // The state has another dtype after `assign`.
  const auto is_state = [&](c10::ScalarType type) {
    const bool wide = kind_ == Kind::abs_max && c10::isIntegralType(type, /*includeBool=*/true);
    return value_->scalar_type() == (wide ? at::kLong : type) && value_->device().is_cpu();
  };
  if (const auto lines = intake_.lines(pass)) {
    if (!is_state(lines->type)) return false;
    lines->each([&](const detail::Memory& row) { detail::take_extreme(row, which, value_->data_ptr()); });
    intake_.count_rows(lines->rows);
    return true;
  }
  const auto type = detail::kernels_of(pass).type();
  const auto rows = intake_.fitting_rows(pass);
  if (!rows || !is_state(type)) return false;
  if (c10::isFloatingType(type)) {
    const auto kept = detail::kernels_of(pass).answer(intake_.folding());
    if (kept.empty()) return false;
    auto* state = static_cast<char*>(value_->data_ptr());
    for (const Summary& one : kept) {
      detail::take_extreme(of(one), type, which, state);
      state += value_->element_size();
    }
  } else {
    const detail::Memory* const all = intake_.whole(pass);
    if (all == nullptr) return false;
    detail::take_extreme(detail::extreme_integer(*all, which), value_->scalar_type(), which,
                         value_->data_ptr());
  }
  intake_.count_rows(*rows);
  return true;
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

void Extremum::assign(const at::Tensor& value) {
  const base::RecordingMode quiet;
  intake_.check_assign(value);
  value_ = detail::own_copy(value);
  intake_.assign(value);
}

at::Tensor Extremum::value() const {
  intake_.require_samples("value");
  const base::RecordingMode quiet;
  if (!intake_.omits() || !c10::isFloatingType(value_->scalar_type())) return detail::own_copy(*value_);
  return value_->masked_fill(at::eq(intake_.taken(), 0), std::numeric_limits<double>::quiet_NaN());
}

core::Results Extremum::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  return intake_.with_omitted({{"value", value()}});
}

void Extremum::clear() {
  intake_ = intake_.fresh();
  value_ = detail::Owned();
}

Min::Min(MinOptions options) : Extremum(Kind::min, "Min", options.folding()) {}
Max::Max(MaxOptions options) : Extremum(Kind::max, "Max", options.folding()) {}
AbsMax::AbsMax(AbsMaxOptions options) : Extremum(Kind::abs_max, "AbsMax", options.folding()) {}

}  // namespace torchtap::reductions
