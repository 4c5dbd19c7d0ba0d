#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/reductions/detail/scan.hpp>
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
  const core::detail::RecordingMode quiet;
  detail::Scan scan(sample);
  ask(scan);
  update(scan);
}

/// Whether one of the numbers of a scan is the sum of powers.
bool Norm::asks() const {
  return p_ == 2 || std::isinf(p_);
}

void Norm::ask(detail::Scan& scan) const {
  if (asks()) scan.ask(intake_.folding(), {/*moments=*/p_ == 2, /*zeros=*/false});
}

void Norm::update(const detail::Scan& scan) {
  const core::detail::RecordingMode quiet;
  const at::Tensor& sample = scan.sample();
  const auto* kept = asks() ? scan.answer(intake_.folding()) : nullptr;
  const detail::Rows rows = kept != nullptr ? intake_.open(scan) : intake_.open(sample);
  if (rows.count == 0) return;
  if (kept != nullptr) {
    const bool omits = intake_.omits();
    fold(detail::tabulate(rows.kept(), *kept, [&](const detail::Summary& one) {
      if (!omits && one.nan != 0) return std::numeric_limits<double>::quiet_NaN();
      if (!omits && one.infinities() != 0) return std::numeric_limits<double>::infinity();
      if (p_ == 2) return one.m2 + static_cast<double>(one.taken) * one.mean * one.mean;
      return one.taken == 0 ? 0.0 : std::max(std::abs(one.min), std::abs(one.max));
    }));
    return intake_.commit(rows);
  }
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
  const core::detail::RecordingMode quiet;
  (void)intake_.open(sample);
}

void Norm::check(const detail::Scan& scan) const {
  if (!asks()) return check(scan.sample());
  const core::detail::RecordingMode quiet;
  (void)intake_.open(scan);
}

void Norm::merge(const Norm& other) {
  const core::detail::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  fold(count() == 0 ? *other.sum_ : other.sum_->to(sum_->device()));
  intake_.merge(other.intake_);
}

at::Tensor Norm::value() const {
  intake_.require_samples("value");
  const core::detail::RecordingMode quiet;
  const auto dtype = c10::toRealValueType(detail::mean_type(intake_.dtype()));
  if (std::isinf(p_) || p_ == 1) return detail::own_copy(*sum_, dtype);
  return (p_ == 2 ? sum_->sqrt() : sum_->pow(1 / p_)).to(dtype);
}

at::Tensor Norm::omitted() const {
  const core::detail::RecordingMode quiet;
  return intake_.omitted();
}

core::Results Norm::results() const {
  if (count() == 0) return {};
  const core::detail::RecordingMode quiet;
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
