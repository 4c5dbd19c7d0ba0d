#include <ATen/Functions.h>

#include <torchtap/core/quiet.hpp>
#include <torchtap/reductions/sum.hpp>

namespace torchtap::reductions {

Sum::Sum(SumOptions options) : intake_("Sum", options.folding()) {}

bool Sum::update_plain(const at::Tensor& sample) {
  if (!intake_.plain() || !detail::add_plain(*sum_, sample)) return false;
  intake_.count_one();
  return true;
}

void Sum::update(const at::Tensor& sample) {
  if (update_plain(sample)) return;
  const core::Quiet quiet;
  const detail::Rows rows = intake_.open(sample);
  if (rows.count == 0) return;
  const auto dtype = detail::sum_type(sample.scalar_type());
  const at::Tensor taken = rows.filled(0.0);
  if (!sum_) {
    sum_ = detail::own_copy(rows.sum(taken, dtype), dtype);
  } else {
    const auto promoted = c10::promoteTypes(sum_->scalar_type(), dtype);
    if (promoted != sum_->scalar_type()) sum_ = detail::own_copy(*sum_, promoted);
    // A single row is added as it is: add_ converts on the way, without a temporary.
    sum_->add_(rows.count == 1 ? taken.reshape(rows.kept()) : rows.sum(taken, dtype));
  }
  intake_.commit(rows);
}

void Sum::check(const at::Tensor& sample) const {
  const core::Quiet quiet;
  (void)intake_.open(sample);
}

void Sum::merge(const Sum& other) {
  const core::Quiet quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    sum_ = other.sum_;
  } else {
    sum_ = at::add(*sum_, other.sum_->to(sum_->device()));
  }
  intake_.merge(other.intake_);
}

void Sum::assign(const at::Tensor& value) {
  const core::Quiet quiet;
  intake_.check_assign(value);
  sum_ = detail::own_copy(value, detail::sum_type(value.scalar_type()));
  intake_.assign(value);
}

at::Tensor Sum::value() const {
  intake_.require_samples("value");
  const core::Quiet quiet;
  return detail::own_copy(*sum_);
}

at::Tensor Sum::omitted() const {
  const core::Quiet quiet;
  return intake_.omitted();
}

core::State Sum::state() const {
  if (count() == 0) return {};
  const core::Quiet quiet;
  return intake_.with_omitted({{"value", value()}});
}

Sum Sum::fresh() const {
  Sum fresh;
  fresh.intake_ = intake_.fresh();
  return fresh;
}

}  // namespace torchtap::reductions
