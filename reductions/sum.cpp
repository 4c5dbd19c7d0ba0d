#include <ATen/Functions.h>

#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/reductions/detail/scan.hpp>
#include <torchtap/reductions/sum.hpp>

namespace torchtap::reductions {
namespace detail {

Total::Total(Kind kind, const char* name, Folding folding) : kind_(kind), intake_(name, std::move(folding)) {}

c10::ScalarType Total::kept_type(c10::ScalarType dtype) const {
  return kind_ == Kind::sum ? sum_type(dtype) : wide_type(dtype);
}

bool Total::update_plain(const at::Tensor& sample) {
  if (!intake_.plain() || !sample.defined() || sample.scalar_type() != intake_.dtype() ||
      !add_plain(*sum_, sample)) {
    return false;
  }
  intake_.count_one();
  return true;
}

void Total::update(const at::Tensor& sample) {
  if (update_plain(sample)) return;
  const core::detail::RecordingMode quiet;
  Scan scan(sample);
  ask(scan);
  update(scan);
}

void Total::ask(Scan& scan) const {
  scan.ask(intake_.folding(), {});
}

void Total::update(const Scan& scan) {
  if (update_plain(scan.sample())) return;
  const core::detail::RecordingMode quiet;
  const Rows rows = intake_.open(scan);
  if (rows.count == 0) return;
  const auto dtype = kept_type(rows.view.scalar_type());
  at::Tensor part;
  if (const auto* kept = scan.answer(intake_.folding())) {
    const bool omits = intake_.omits();
    part = tabulate(rows.kept(), *kept,
                    [&](const Summary& one) { return omits ? one.sum : one.with_non_finite(one.sum); });
  } else {
    const at::Tensor taken = rows.filled(0.0);
    // A single row is added as it is: add_ converts on the way, without a temporary.
    part = rows.count == 1 ? taken.reshape(rows.kept()) : rows.sum(taken, dtype);
  }
  if (sum_) {
    const auto promoted = c10::promoteTypes(sum_->scalar_type(), dtype);
    if (promoted != sum_->scalar_type()) sum_ = own_copy(*sum_, promoted);
    sum_->add_(part);
  } else {
    sum_ = own_copy(part, dtype);
  }
  intake_.commit(rows);
}

void Total::check(const at::Tensor& sample) const {
  const core::detail::RecordingMode quiet;
  (void)intake_.open(sample);
}

void Total::check(const Scan& scan) const {
  const core::detail::RecordingMode quiet;
  (void)intake_.open(scan);
}

void Total::merge_from(const Total& other) {
  const core::detail::RecordingMode quiet;
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
  const core::detail::RecordingMode quiet;
  intake_.check_assign(value);
  sum_ = own_copy(value, kept_type(value.scalar_type()));
  intake_.assign(value);
}

at::Tensor Total::value() const {
  intake_.require_samples("value");
  const core::detail::RecordingMode quiet;
  if (kind_ == Kind::sum) return own_copy(*sum_);
  return at::div(*sum_, intake_.taken()).to(mean_type(intake_.dtype()));
}

at::Tensor Total::omitted() const {
  const core::detail::RecordingMode quiet;
  return intake_.omitted();
}

core::Results Total::results() const {
  if (count() == 0) return {};
  const core::detail::RecordingMode quiet;
  return intake_.with_omitted({{"value", value()}});
}

void Total::clear() {
  intake_ = intake_.fresh();
  sum_ = Owned();
}

}  // namespace detail

Sum::Sum(SumOptions options) : Total(Kind::sum, "Sum", options.folding()) {}
Mean::Mean(MeanOptions options) : Total(Kind::mean, "Mean", options.folding()) {}

Sum Sum::fresh() const {
  Sum fresh = *this;
  fresh.clear();
  return fresh;
}

Mean Mean::fresh() const {
  Mean fresh = *this;
  fresh.clear();
  return fresh;
}

}  // namespace torchtap::reductions
