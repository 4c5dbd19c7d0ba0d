// Compares parameters before and after steps.
#include <ATen/ATen.h>

#include <cmath>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/reductions/blocks.hpp>
#include <torchtap/views/monitor/detail/parameter_steps.hpp>
#include <torchtap/views/monitor/detail/window_facts.hpp>

namespace torchtap::views::monitor::detail {
namespace {

bool can_be_compared(const at::Tensor& parameter) {
  return parameter.layout() == c10::kStrided && parameter.numel() != 0 && !parameter.is_meta() &&
         (parameter.is_floating_point() || parameter.is_complex());
}

/// A copy of the elements that are compared.
at::Tensor compared(const at::Tensor& parameter) {
  const at::Tensor flat = parameter.detach().reshape({-1});
  const std::int64_t size = flat.numel(), most = ParameterSteps::most_elements;
  return (size <= most ? flat : flat.slice(0, 0, size, (size + most - 1) / most)).clone();
}

/// In float64, which no float32 overflows.
double norm_of(const at::Tensor& values) {
  const at::Tensor real = values.is_complex() ? at::view_as_real(values) : values;
  return real.to(at::kDouble).norm().item<double>();
}

}  // namespace

ParameterSteps::ParameterSteps(const std::vector<model::ModuleRef>& modules) {
  for (const model::ModuleRef& module : modules) {
    std::int64_t slot = -1;
    for (const model::Held& one : model::held_by(module)) {
      if (one.buffer) continue;
      ++slot;
      bool shared = false;
      for (const Held& other : held_) shared = shared || other.tensor.is_same(one.tensor);
      if (shared || !can_be_compared(one.tensor)) continue;
      Held held;
      held.about.path = module.path();
      held.about.type = module.type();
      held.about.tensor = rules::Tensor::parameter;
      held.about.slot = slot;
      held.about.leaf = module.leaf();
      held.about.dimensions = one.tensor.dim();
      held.tensor = one.tensor;
      held_.push_back(std::move(held));
    }
  }
}

void ParameterSteps::begin(bool keeps) {
  const base::RecordingMode quiet;
  const std::lock_guard lock(mutex_);
  if (kept_) {
    std::vector<double> ratios;
    bool stepped = false;
    for (Held& one : held_) {
      double ratio = -1;  // there is no ratio
      if (one.before.defined() && can_be_compared(one.tensor)) {
        const at::Tensor now = compared(one.tensor);
        if (now.sizes() == one.before.sizes() && now.dtype() == one.before.dtype() &&
            now.device() == one.before.device()) {
          const double change = norm_of(now - one.before), size = norm_of(one.before);
          ratio = change == 0 ? 0 : change / size;
        }
      }
      stepped = stepped || ratio > 0;
      ratios.push_back(ratio);
      one.before.reset();
    }
    for (std::size_t i = 0; stepped && i < held_.size(); ++i) {
      if (ratios[i] < 0 || !std::isfinite(ratios[i])) continue;
      held_[i].updates.push_back(ratios[i]);
      if (held_[i].updates.size() > most_steps) held_[i].updates.pop_front();
    }
    kept_ = false;
  }
  if (!keeps) return;
  for (Held& one : held_) {
    if (!can_be_compared(one.tensor)) continue;
    one.last = compared(one.tensor);
    if (one.tensor.requires_grad()) one.before = one.last;
  }
  kept_ = true;
}

std::vector<rules::Facts> ParameterSteps::facts() const {
  std::vector<Held> all;
  {
    const std::lock_guard lock(mutex_);
    all = held_;
  }
  const base::RecordingMode quiet;
  std::vector<rules::Facts> facts;
  for (const Held& one : all) {
    if (!one.last.defined()) continue;
    rules::Facts about = one.about;
    reductions::Blocks blocks(2);
    blocks.update(one.last);
    set_facts(about, blocks.results());
    about.updates.assign(one.updates.begin(), one.updates.end());
    facts.push_back(std::move(about));
  }
  return facts;
}

}  // namespace torchtap::views::monitor::detail
