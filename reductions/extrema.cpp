#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/reductions/detail/scan.hpp>
#include <torchtap/reductions/extrema.hpp>

namespace torchtap::reductions {
namespace detail {
namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
}

Extremum::Extremum(Kind kind, const char* name, Folding folding)
    : kind_(kind), intake_(name, std::move(folding), kind == Kind::abs_max ? Accepts::any : Accepts::real) {}

double Extremum::identity() const {
  return kind_ == Kind::min ? kInfinity : -kInfinity;
}

at::Tensor Extremum::of(const Rows& rows) const {
  at::Tensor x = rows.view;
  if (kind_ == Kind::abs_max) {
    const bool integral = c10::isIntegralType(x.scalar_type(), /*includeBool=*/true);
    x = at::abs(integral ? x.to(at::kLong) : x);  // int64: abs(int8(-128)) would be -128, bool has none
  }
  if (rows.finite.defined()) x = x.masked_fill(rows.finite.logical_not(), identity());
  if (rows.count == 1) return x.reshape(rows.kept());
  return kind_ == Kind::min ? at::amin(x, rows.folded) : at::amax(x, rows.folded);
}

void Extremum::fold(const at::Tensor& value) {
  const auto promoted = c10::promoteTypes(value_->scalar_type(), value.scalar_type());
  if (promoted != value_->scalar_type()) value_ = own_copy(*value_, promoted);
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

void Extremum::update(const at::Tensor& sample) {
  const core::detail::RecordingMode quiet;
  Scan scan(sample);
  ask(scan);
  update(scan);
}

void Extremum::ask(Scan& scan) const {
  scan.ask(intake_.folding(), {});
}

void Extremum::update(const Scan& scan) {
  const core::detail::RecordingMode quiet;
  const Rows rows = intake_.open(scan);
  if (rows.count == 0) return;
  at::Tensor part;
  if (const auto* kept = scan.answer(intake_.folding())) {
    part =
        tabulate(rows.kept(), *kept, [&](const Summary& one) { return of(one); }).to(rows.view.scalar_type());
  } else {
    part = of(rows);
  }
  if (value_) {
    fold(part);
  } else {
    value_ = own_copy(part);
  }
  intake_.commit(rows);
}

void Extremum::check(const at::Tensor& sample) const {
  const core::detail::RecordingMode quiet;
  (void)intake_.open(sample);
}

void Extremum::check(const Scan& scan) const {
  const core::detail::RecordingMode quiet;
  (void)intake_.open(scan);
}

void Extremum::merge_from(const Extremum& other) {
  const core::detail::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    value_ = other.value_;
  } else {
    fold(other.value_->to(value_->device()));
  }
  intake_.merge(other.intake_);
}

void Extremum::assign(const at::Tensor& value) {
  const core::detail::RecordingMode quiet;
  intake_.check_assign(value);
  value_ = own_copy(value);
  intake_.assign(value);
}

at::Tensor Extremum::value() const {
  intake_.require_samples("value");
  const core::detail::RecordingMode quiet;
  if (!intake_.omits() || !c10::isFloatingType(value_->scalar_type())) return own_copy(*value_);
  return value_->masked_fill(at::eq(intake_.taken(), 0), std::numeric_limits<double>::quiet_NaN());
}

at::Tensor Extremum::omitted() const {
  const core::detail::RecordingMode quiet;
  return intake_.omitted();
}

core::Results Extremum::results() const {
  if (count() == 0) return {};
  const core::detail::RecordingMode quiet;
  return intake_.with_omitted({{"value", value()}});
}

void Extremum::clear() {
  intake_ = intake_.fresh();
  value_ = Owned();
}

}  // namespace detail

Min::Min(MinOptions options) : Extremum(Kind::min, "Min", options.folding()) {}
Max::Max(MaxOptions options) : Extremum(Kind::max, "Max", options.folding()) {}
AbsMax::AbsMax(AbsMaxOptions options) : Extremum(Kind::abs_max, "AbsMax", options.folding()) {}

Min Min::fresh() const {
  Min fresh = *this;
  fresh.clear();
  return fresh;
}

Max Max::fresh() const {
  Max fresh = *this;
  fresh.clear();
  return fresh;
}

AbsMax AbsMax::fresh() const {
  AbsMax fresh = *this;
  fresh.clear();
  return fresh;
}

}  // namespace torchtap::reductions
