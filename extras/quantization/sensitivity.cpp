// The cost of quantizing each layer, and the choice of dtypes that follows from it.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sub.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/quantization/fake_quantize.hpp>
#include <torchtap/quantization/sensitivity.hpp>

namespace torchtap::quantization {
namespace {

using Call = std::function<at::Tensor(const at::Tensor&)>;

/// Runs a model from one of its modules on. The model is called with a single row of NaN, and the module gets
/// the input that was kept of the whole batch: the modules before it cost next to nothing, and if the output
/// depends on them in another way, it is NaN or has another shape.
class Resumable {
 public:
  /// `watched` are the modules that it can run from.
  Resumable(const std::vector<model::ModuleRef>& modules, const std::vector<bool>& watched, Call call)
      : call_(std::move(call)), first_calls_(modules.size()) {
    hooks::DeferredCompile compile;
    for (std::size_t i = 0; i < modules.size(); ++i) {
      if (!watched[i]) continue;
      handles_.push_back(hooks::attach(modules[i], hooks::Kind::forward_pre,
                                       [this, i](hooks::Event& event) { arrived(i, event.inputs()); }));
    }
    compile.commit();
  }

  /// Runs the whole model, and keeps the inputs of some modules.
  at::Tensor keep(const at::Tensor& batch, const std::vector<bool>& needed) {
    first_calls_.assign(needed.size(), {});
    calls_ = 0;
    needed_ = &needed;
    at::Tensor output = call_(batch);
    needed_ = nullptr;
    return output;
  }
  /// The output for the batch whose inputs are kept; undefined if it depends on more than the input of
  /// `module`, or if `layer` is called before that.
  at::Tensor from(std::size_t module, std::size_t layer, const at::Tensor& batch,
                  const at::Tensor& expected) {
    const FirstCall& first = first_calls_[module];
    if (!first.input.defined() || first.order > first_calls_[layer].order) return {};
    const at::Tensor row = batch.narrow(0, 0, 1);
    resumed_ = module;
    at::Tensor output;
    try {
      output = call_(at::full_like(row, row.is_floating_point() ? NAN : 0.));
      if (output.sizes() != expected.sizes() || at::isnan(output).any().item<bool>()) output = at::Tensor();
    } catch (const std::exception&) {  // it cannot compute with one row, or with NaN
      output = at::Tensor();
    }
    resumed_.reset();
    return output;
  }

 private:
  struct FirstCall {
    at::Tensor input;  // undefined if it is not needed, or not one tensor
    std::int64_t order = std::numeric_limits<std::int64_t>::max();
  };
  // Inputs are copied, because the module, or one behind it, may work in place.
  void arrived(std::size_t i, hooks::Tensors& inputs) {
    const std::lock_guard lock(mutex_);  // TorchScript's fork
    FirstCall& first = first_calls_[i];
    if (resumed_ == i) {
      inputs[0] = first.input.clone();
      resumed_.reset();
    } else if (needed_ != nullptr && first.order > calls_) {
      first.order = calls_++;
      const bool one = inputs.size() == 1 && !inputs.has_unknown() && inputs[0].defined();
      if (one && (*needed_)[i]) first.input = inputs[0].clone();
    }
  }

  Call call_;
  std::mutex mutex_;
  std::vector<FirstCall> first_calls_;
  std::int64_t calls_ = 0;
  const std::vector<bool>* needed_ = nullptr;
  std::optional<std::size_t> resumed_;
  std::vector<hooks::Handle> handles_;  // last, so that hooks end before the rest
};

/// One layer in one dtype. Modules are indices.
struct Trial {
  LayerCost cost;
  Calibration alone;
  std::size_t layer;
  std::vector<std::size_t> around;  // the layer and the modules around it, from the inside
  std::optional<std::size_t> from;  // the module where its run resumes
};

/// The tensors of each layer, for those calibrations that have it; in the order of the calibrations.
std::vector<std::vector<std::vector<QuantizedTensor>>> by_layer(
    const std::vector<Calibration>& calibrations) {
  std::vector<std::vector<std::vector<QuantizedTensor>>> layers;
  std::map<std::string, std::size_t> positions;
  for (const Calibration& calibration : calibrations) {
    std::map<std::string, std::vector<QuantizedTensor>> tensors;
    for (const QuantizedTensor& tensor : calibration) {
      if (positions.emplace(tensor.path, layers.size()).second) layers.emplace_back();
      tensors[tensor.path].push_back(tensor);
    }
    for (auto& [path, of_layer] : tensors) layers[positions[path]].push_back(std::move(of_layer));
  }
  return layers;
}

std::vector<LayerCost> measure_costs(const std::vector<model::ModuleRef>& modules, const Call& call,
                                     const std::vector<Calibration>& calibrations, const Data& data,
                                     const Metric& metric) {
  TORCH_CHECK_VALUE(!calibrations.empty(),
                    "quantization::sensitivity: there is no calibration; pass one for each dtype.");
  TORCH_CHECK_VALUE(data.batches > 0 && data.batch, "quantization::sensitivity: there is no data (",
                    data.batches, " batches); pass at least one batch.");
  std::map<std::string, std::size_t> by_path;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const model::ModuleRef& module = modules[i];
    const bool training = module.scripted()
                              ? module.script().hasattr("training") && module.script().is_training()
                              : module.module().is_training();
    TORCH_CHECK_VALUE(!training, "quantization::sensitivity: module \"", module.path(), "\" (", module.type(),
                      ") is in training mode, in which a forward may change it; call model.eval() first.");
    by_path.emplace(module.path(), i);
    for (const std::string& alias : module.aliases()) by_path.emplace(alias, i);
  }
  for (const Calibration& calibration : calibrations) fake_quantize(modules, calibration).remove();  // throws

  const at::NoGradGuard no_gradients;
  std::vector<bool> watched(modules.size(), false), needed = watched;
  std::vector<Trial> trials;
  for (auto& dtypes : by_layer(calibrations)) {
    for (auto& tensors : dtypes) {
      const QuantizedTensor one = tensors[0];
      Trial trial{{one.path, one.type, one.parameters.dtype},
                  Calibration(std::move(tensors)),
                  by_path.at(one.path),
                  {},
                  {}};
      if (fake_quantize(modules, trial.alone).weights() > 0) {
        for (const QuantizedTensor& tensor : trial.alone)
          trial.cost.dtype = tensor.weights.value_or(trial.cost.dtype);
        for (const model::Held& held : model::held_by(modules[trial.layer])) {
          const bool rounded = !held.buffer && held.tensor.dim() >= 2 && held.tensor.is_floating_point();
          if (rounded) trial.cost.weights += held.tensor.numel();
        }
      }
      for (std::string path = one.path; !path.empty();) {
        const std::size_t module = by_path.at(path);
        if (modules[module].has_forward() && modules[module].reachable()) {
          trial.around.push_back(module);
          watched[module] = true;
        }
        const auto dot = path.rfind('.');
        path.resize(dot == std::string::npos ? 0 : dot);
      }
      trials.push_back(std::move(trial));
    }
  }

  // Two rows show whether a run that resumes at a layer gives the same bits as the whole model.
  Resumable model(modules, watched, call);
  const at::Tensor first = data.batch(0);
  if (first.dim() > 0 && first.size(0) > 1) try {
      const at::Tensor rows = first.narrow(0, 0, 2);
      model.keep(rows, watched);
      const Trial* before = nullptr;
      for (Trial& trial : trials) {
        if (before != nullptr && before->layer == trial.layer) {  // another dtype
          trial.from = before->from;
          continue;
        }
        before = &trial;
        const FakeQuantized quantized = fake_quantize(modules, trial.alone);
        const at::Tensor expected = call(rows);
        for (auto module = trial.around.begin(); !trial.from && module != trial.around.end(); ++module) {
          const at::Tensor output = model.from(*module, trial.layer, rows, expected);
          if (output.defined() && at::equal(output, expected)) trial.from = *module;
        }
        if (trial.from) needed[*trial.from] = true;
      }
    } catch (const std::exception&) {  // a model for whole batches only
    }

  double before = 0;
  for (Trial& trial : trials) trial.cost.resumed = trial.from.has_value();
  for (std::int64_t i = 0; i < data.batches; ++i) {
    const at::Tensor batch = data.batch(i);
    const at::Tensor expected = model.keep(batch, needed);
    before += metric(expected, expected, i);
    for (Trial& trial : trials) {
      FakeQuantized quantized = fake_quantize(modules, trial.alone);
      at::Tensor output;
      if (trial.from) output = model.from(*trial.from, trial.layer, batch, expected);
      trial.cost.resumed &= output.defined();
      if (!output.defined()) output = call(batch);
      quantized.remove();  // the metric may run the model
      trial.cost.cost += metric(output, expected, i);
    }
  }
  std::vector<LayerCost> costs;
  for (Trial& trial : trials) {
    costs.push_back(std::move(trial.cost));
    costs.back().cost = (costs.back().cost - before) / static_cast<double>(data.batches);
  }
  return costs;
}

}  // namespace

double relative_squared_error(const at::Tensor& output, const at::Tensor& expected, std::int64_t /*batch*/) {
  const at::Tensor reference = expected.to(at::kDouble);
  const double error = at::sub(output.to(at::kDouble), reference).square().sum().item<double>();
  return error == 0 ? 0 : error / reference.square().sum().item<double>();
}

std::vector<LayerCost> sensitivity(torch::nn::Module& model,
                                   const std::function<at::Tensor(const at::Tensor&)>& call,
                                   const std::vector<Calibration>& calibrations, const Data& data,
                                   const Metric& metric) {
  return measure_costs(model::walk_modules(model), call, calibrations, data, metric);
}

std::vector<LayerCost> sensitivity(const torch::jit::Module& model,
                                   const std::vector<Calibration>& calibrations, const Data& data,
                                   const Metric& metric) {
  const auto call = [script = model](const at::Tensor& batch) mutable {
    return script.forward({batch}).toTensor();
  };
  return measure_costs(model::walk_modules(model), call, calibrations, data, metric);
}

Calibration mixed_precision(const std::vector<LayerCost>& costs, const std::vector<Calibration>& calibrations,
                            double bits_per_weight) {
  struct Choice {
    double bits = 0;  // of an element of the layer's weight or, if it has none, of its output
    double cost = 0;
    std::vector<QuantizedTensor> tensors;
  };
  struct Layer {
    double weights = 0;
    std::vector<Choice> choices;
    Choice now;
  };
  std::vector<Layer> layers;
  double all = 0, used = 0;  // weights, and their bits
  auto cost = costs.begin();
  for (auto& dtypes : by_layer(calibrations)) {
    Layer layer;
    for (auto& tensors : dtypes) {
      const std::string& path = tensors[0].path;
      TORCH_CHECK_VALUE(cost != costs.end() && cost->path == path && std::isfinite(cost->cost),
                        "quantization::mixed_precision: expected a finite cost of \"", path,
                        "\" at position ", cost - costs.begin(), ", found ",
                        cost == costs.end() ? "no more" : c10::str(cost->cost, " of \"", cost->path, "\""),
                        "; pass what `sensitivity` returned for the same calibrations.");
      layer.weights = std::max(layer.weights, static_cast<double>(cost->weights));
      layer.choices.push_back({static_cast<double>(bits(cost->dtype)), cost->cost, std::move(tensors)});
      if (cost->weights == 0) layer.choices.back().bits += 32;  // a weight that is left in float32
      ++cost;
    }
    for (Choice& choice : layer.choices) {
      if (layer.weights > 0) choice.bits = std::min(choice.bits, 32.);
      const bool same = choice.bits == layer.now.bits;
      if (choice.bits > layer.now.bits || (same && choice.cost < layer.now.cost)) layer.now = choice;
    }
    all += layer.weights;
    used += layer.weights * layer.now.bits;
    layers.push_back(std::move(layer));
  }

  for (;;) {
    Layer* best = nullptr;
    const Choice* step = nullptr;
    double least = std::numeric_limits<double>::infinity();  // cost for each bit that is saved
    for (Layer& layer : layers) {
      for (const Choice& choice : layer.choices) {
        const double saved = layer.weights * (layer.now.bits - choice.bits);
        if (saved <= 0 || (choice.cost - layer.now.cost) / saved >= least) continue;
        least = (choice.cost - layer.now.cost) / saved;
        best = &layer;
        step = &choice;
      }
    }
    const bool kept = used <= bits_per_weight * all;
    if (kept && least >= 0) break;  // below 0 the narrower dtype even costs less
    TORCH_CHECK_VALUE(best != nullptr, "quantization::mixed_precision: the narrowest dtypes need ",
                      used / all, " bits per weight, more than the budget of ", bits_per_weight,
                      "; raise it, or add a calibration with a narrower dtype.");
    used -= best->weights * (best->now.bits - step->bits);
    best->now = *step;
  }
  std::vector<QuantizedTensor> tensors;
  for (const Layer& layer : layers) {
    tensors.insert(tensors.end(), layer.now.tensors.begin(), layer.now.tensors.end());
  }
  return Calibration(std::move(tensors), calibrations.empty() ? "" : calibrations.front().method());
}

}  // namespace torchtap::quantization
