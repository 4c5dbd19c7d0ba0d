#include <ATen/Functions.h>

#include <torchtap/core/quiet.hpp>
#include <torchtap/reductions/mean.hpp>

namespace torchtap::reductions {

Mean::Mean(MeanOptions options) : intake_("Mean", options.folding()) {}

bool Mean::update_plain(const at::Tensor& sample) {
  if (!intake_.plain() || !sample.defined() || sample.scalar_type() != intake_.dtype() ||
      !detail::add_plain(*sum_, sample)) {
    return false;
  }
  intake_.count_one();
  return true;
}

void Mean::update(const at::Tensor& sample) {
  if (update_plain(sample)) return;
  const core::Quiet quiet;
  const detail::Rows rows = intake_.open(sample);
  if (rows.count == 0) return;
  const auto dtype = detail::wide_type(sample.scalar_type());
  const at::Tensor taken = rows.filled(0.0);
  if (!sum_) {
    sum_ = detail::own_copy(rows.sum(taken, dtype), dtype);
  } else {
    if (dtype == at::kComplexDouble && !sum_->is_complex()) sum_ = detail::own_copy(*sum_, dtype);
    sum_->add_(rows.count == 1 ? taken.reshape(rows.kept()) : rows.sum(taken, dtype));
  }
  intake_.commit(rows);
}

void Mean::check(const at::Tensor& sample) const {
  const core::Quiet quiet;
  (void)intake_.open(sample);
}

void Mean::merge(const Mean& other) {
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

at::Tensor Mean::value() const {
  intake_.require_samples("value");
  const core::Quiet quiet;
  return at::div(*sum_, intake_.taken()).to(detail::mean_type(intake_.dtype()));
}

at::Tensor Mean::omitted() const {
  const core::Quiet quiet;
  return intake_.omitted();
}

core::State Mean::state() const {
  if (count() == 0) return {};
  const core::Quiet quiet;
  return intake_.with_omitted({{"value", value()}});
}

Mean Mean::fresh() const {
  Mean fresh;
  fresh.intake_ = intake_.fresh();
  return fresh;
}

}  // namespace torchtap::reductions
