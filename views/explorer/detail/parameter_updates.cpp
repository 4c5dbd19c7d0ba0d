// Compares parameters before and after the optimizer's step.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/explorer/detail/parameter_updates.hpp>

namespace torchtap::views::explorer::detail {
namespace {

/// The elements that are compared.
at::Tensor some(const at::Tensor& parameter) {
  const at::Tensor flat = parameter.detach().reshape({-1});
  const std::int64_t size = flat.numel(), most = Updates::most_elements;
  return size <= most ? flat : flat.slice(0, 0, size, (size + most - 1) / most);
}

/// In float64, which no float32 overflows.
double size_of(const at::Tensor& values) {
  const at::Tensor wide = values.to(values.is_complex() ? at::kComplexDouble : at::kDouble);
  return (wide.is_complex() ? at::view_as_real(wide) : wide).norm().item<double>();
}

bool comparable(const at::Tensor& parameter) {
  return parameter.dim() > 1 && parameter.layout() == c10::kStrided && parameter.numel() != 0 &&
         !parameter.is_meta() && (parameter.is_floating_point() || parameter.is_complex());
}

}  // namespace

void Updates::keep(std::int32_t series, const at::Tensor& parameter, std::int64_t step) {
  if (!parameter.requires_grad() || !comparable(parameter)) return;
  const base::RecordingMode quiet;
  at::Tensor values = some(parameter).clone();
  const std::lock_guard lock(mutex_);
  kept_[series] = {parameter, std::move(values), step};
}

bool Updates::empty() const {
  const std::lock_guard lock(mutex_);
  return kept_.empty();
}

void Updates::compare(Run& run) {
  std::map<std::int32_t, Before> kept;
  {
    const std::lock_guard lock(mutex_);
    kept.swap(kept_);
  }
  const base::RecordingMode quiet;
  std::map<std::int32_t, double> ratios;
  for (const auto& [series, before] : kept) {
    if (!comparable(before.parameter)) continue;
    const at::Tensor now = some(before.parameter);
    if (now.sizes() != before.values.sizes() || now.dtype() != before.values.dtype() ||
        now.device() != before.values.device())
      continue;  // it was replaced by another one
    const double ratio = size_of(now - before.values) / size_of(before.values);
    if (std::isfinite(ratio)) ratios[series] = ratio;
  }
  if (std::all_of(ratios.begin(), ratios.end(), [](const auto& one) { return one.second == 0; })) return;
  for (const auto& [series, ratio] : ratios) run.add_update(series, kept.at(series).step, ratio);
}

}  // namespace torchtap::views::explorer::detail
