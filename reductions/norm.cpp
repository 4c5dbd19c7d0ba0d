#include <ATen/Functions.h>

#include <cmath>
#include <torchtap/core/quiet.hpp>
#include <torchtap/reductions/norm.hpp>

namespace torchtap::reductions {

Norm::Norm(NormOptions options) : intake_("Norm", options.folding()), p_(options.p()) {
  TORCH_CHECK_VALUE(p_ > 0, "Norm: p must be positive or infinity, got ", p_,
                    "; count zeros with Count, smallest magnitudes with map(abs, Min()).");
}

void Norm::fold(const at::Tensor& part) {
  if (!sum_) {
    sum_ = detail::own_copy(part);
  } else if (std::isinf(p_)) {
    at::maximum_out(*sum_, *sum_, part);
  } else {
    sum_->add_(part);
  }
}

void Norm::update(const at::Tensor& sample) {
  const core::Quiet quiet;
  const detail::Rows rows = intake_.open(sample);
  if (rows.count == 0) return;
  const at::Tensor x = rows.filled(0.0).to(detail::wide_type(sample.scalar_type()));
  if (std::isinf(p_)) {
    fold(rows.count == 1 ? x.abs().reshape(rows.kept()) : at::amax(x.abs(), rows.folded));
  } else if (p_ == 1) {
    fold(rows.sum(x.abs(), at::kDouble));
  } else if (p_ == 2 && !x.is_complex()) {
    fold(rows.sum(x.square(), at::kDouble));
  } else {
    fold(rows.sum(x.abs().pow_(p_), at::kDouble));
  }
  intake_.commit(rows);
}

void Norm::check(const at::Tensor& sample) const {
  const core::Quiet quiet;
  (void)intake_.open(sample);
}

void Norm::merge(const Norm& other) {
  const core::Quiet quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  fold(count() == 0 ? *other.sum_ : other.sum_->to(sum_->device()));
  intake_.merge(other.intake_);
}

at::Tensor Norm::value() const {
  intake_.require_samples("value");
  const core::Quiet quiet;
  const auto dtype = c10::toRealValueType(detail::mean_type(intake_.dtype()));
  if (std::isinf(p_) || p_ == 1) return detail::own_copy(*sum_, dtype);
  return (p_ == 2 ? sum_->sqrt() : sum_->pow(1 / p_)).to(dtype);
}

at::Tensor Norm::omitted() const {
  const core::Quiet quiet;
  return intake_.omitted();
}

core::State Norm::state() const {
  if (count() == 0) return {};
  const core::Quiet quiet;
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
