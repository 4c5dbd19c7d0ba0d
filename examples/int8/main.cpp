// What does a network lose in int8, and in int4? Trains the Fashion-MNIST classifier and, with --script, a
// network that Python has scripted (script.py), and records the distribution of each layer's outputs in one
// pass over a few images. From these follow the parameters by each method; the accuracy with them is measured
// in the float model, and what each layer alone costs. The scripted network is also converted to LibTorch's
// quantized operators. check.py compares everything with Python.

#include <torch/csrc/jit/passes/fold_conv_bn.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/quantization/quantization.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/log_histogram.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/min.hpp>
#include <torchtap/reductions/series.hpp>
#include <torchtap/storage/file.hpp>

#include "../fashion_mnist/classifier.hpp"

namespace quantization = torchtap::quantization;
namespace tap = torchtap;
using quantization::Dtype;
using quantization::Method;

namespace {

constexpr std::array<Method, 4> kMethods = {Method::min_max, Method::percentile, Method::mse,
                                            Method::entropy};
constexpr std::int64_t kBatch = 64;
constexpr double kMixedBits = 6;

struct Images {
  Dataset training, calibration, test;
  std::int64_t epochs;
};

// The two kinds of models.

at::Tensor scores_of(torch::nn::Sequential& model, const at::Tensor& images) {
  return model->forward(images);
}
at::Tensor scores_of(torch::jit::Module& model, const at::Tensor& images) {
  return model.forward({images}).toTensor();
}
quantization::FakeQuantized quantized(torch::nn::Sequential& model, const quantization::Calibration& by) {
  return quantization::fake_quantize(*model, by);
}
quantization::FakeQuantized quantized(torch::jit::Module& model, const quantization::Calibration& by) {
  return quantization::fake_quantize(model, by);
}
std::vector<quantization::LayerCost> costs_of(torch::nn::Sequential& model,
                                              const std::vector<quantization::Calibration>& calibrations,
                                              const quantization::Data& data) {
  const auto call = [&](const at::Tensor& images) { return model->forward(images); };
  return quantization::sensitivity(*model, call, calibrations, data);
}
std::vector<quantization::LayerCost> costs_of(torch::jit::Module& model,
                                              const std::vector<quantization::Calibration>& calibrations,
                                              const quantization::Data& data) {
  return quantization::sensitivity(model, calibrations, data);
}
std::map<std::string, at::Tensor> parameters_of(const torch::nn::Sequential& model) {
  std::map<std::string, at::Tensor> all;
  for (const auto& parameter : model->named_parameters()) all.emplace(parameter.key(), parameter->detach());
  return all;
}
std::map<std::string, at::Tensor> parameters_of(const torch::jit::Module& model) {
  std::map<std::string, at::Tensor> all;
  for (const auto& parameter : model.named_parameters())
    all.emplace(parameter.name, parameter.value.detach());
  return all;
}

void train_script(torch::jit::Module& model, const Dataset& data, std::int64_t epochs) {
  model.train();
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : model.parameters()) parameters.push_back(parameter);
  torch::optim::Adam optimizer(parameters, 1e-3);
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (const auto& rows : torch::randperm(data.size()).split(kBatch)) {
      if (rows.size(0) < 2) continue;  // too few for a batch norm
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(scores_of(model, data.images.index_select(0, rows)),
                                           data.labels.index_select(0, rows))
          .backward();
      optimizer.step();
    }
  }
  model.eval();
}

template <class Model>
std::int64_t right_of(Model& model, const Dataset& data) {
  std::int64_t right = 0;
  const auto images = data.images.split(kBatch), labels = data.labels.split(kBatch);
  for (std::size_t i = 0; i < images.size(); ++i)
    right += scores_of(model, images[i]).argmax(1).eq(labels[i]).sum().template item<std::int64_t>();
  return right;
}

struct Recorded {
  std::vector<tap::storage::Entry> images, outputs;
};

/// The distributions of the images and of the layers' outputs.
template <class Model>
Recorded record(Model& model, const Dataset& data, const std::filesystem::path& folder) {
  using namespace tap::reductions;
  const Series distribution(LogHistogram(LogHistogramOptions(6).over_all(true)),
                            Min(MinOptions().over_all(true)), Max(MaxOptions().over_all(true)));
  tap::recorders::ForwardPre images(distribution);
  tap::recorders::ForwardOutput outputs(distribution);
  images.attach(model, tap::selectors::names("conv1"));
  outputs.attach(model, tap::selectors::types("Conv2d", "ReLU", "Linear"));
  for (const at::Tensor& batch : data.images.split(kBatch)) scores_of(model, batch);

  const auto options = tap::storage::SaveOptions().mkdir(true).overwrite(true);
  images.save(folder / "images", options);
  outputs.save(folder / "outputs", options);
  return {images.entries(), outputs.entries()};
}

/// Images are bytes, whose range is known, and so have eight bits in any case; the layers' outputs and
/// weights are as the options say.
quantization::Calibration calibrate(const Recorded& recorded,
                                    const quantization::QuantizationOptions& options) {
  auto tensors =
      quantization::calibrate(recorded.images, quantization::QuantizationOptions().method(Method::min_max));
  std::vector<quantization::QuantizedTensor> all(tensors.begin(), tensors.end());
  tensors = quantization::calibrate(recorded.outputs, options);
  all.insert(all.end(), tensors.begin(), tensors.end());
  return quantization::Calibration(std::move(all), tensors.method());
}

/// The scales of the layers' weights, as `fake_quantize` computes them.
tap::core::Value weight_scales(const std::map<std::string, at::Tensor>& parameters) {
  tap::core::Value::Dict scales;
  for (const Dtype dtype : {Dtype::int8, Dtype::int4}) {
    for (const auto& [name, tensor] : parameters) {
      if (tensor.dim() < 2) continue;
      scales.emplace_back(std::string(quantization::name_of(dtype)) + "." + name,
                          quantization::weight_parameters(tensor, dtype).scale);
    }
  }
  return scales;
}

/// One network: records, calibrates, measures and saves. Returns whether int8 loses at most 5 % by each
/// method.
template <class Model>
bool study(Model& model, const Images& images, const std::filesystem::path& folder) {
  const torch::NoGradGuard no_grad;
  const auto options = tap::storage::SaveOptions().mkdir(true).overwrite(true);
  const Recorded recorded = record(model, images.calibration, folder);
  const auto parameters = parameters_of(model);
  tap::storage::save_value(folder / "parameters.pt",
                           tap::core::Value::Dict(parameters.begin(), parameters.end()), options);
  tap::storage::save_value(folder / "weight_scales.pt", weight_scales(parameters), options);

  tap::core::Value::Dict results;
  const auto note = [&](const std::string& name, std::int64_t right) {
    results.emplace_back(name, at::scalar_tensor(right, at::kLong));
    return 100 * static_cast<double>(right) / static_cast<double>(images.test.size());
  };
  const auto accuracy = [&](const std::string& name, const quantization::Calibration& calibration) {
    calibration.save(folder / (name + ".json"));
    const auto guard = quantized(model, calibration);
    return note(name, right_of(model, images.test));
  };
  const double in_float = note("float", right_of(model, images.test));
  std::printf("\n%s: %% of %lld test images that are right; %.2f in float\n\n", folder.filename().c_str(),
              static_cast<long long>(images.test.size()), in_float);
  std::printf("%-11s%9s%14s%9s\n", "", "int8", "int4 weights", "int4");

  const auto batches = images.calibration.images.split(kBatch);
  const quantization::Data some{1, [&](std::int64_t i) { return batches[static_cast<std::size_t>(i)]; }};
  double worst = in_float;
  for (const Method method : kMethods) {
    const auto base = quantization::QuantizationOptions().method(method);
    const std::string name(quantization::name_of(method));
    const auto int8 = calibrate(recorded, base);
    const auto weights = calibrate(recorded, quantization::QuantizationOptions(base).weights(Dtype::int4));
    const auto int4 =
        calibrate(recorded, quantization::QuantizationOptions(base).dtype(Dtype::int4).weights(Dtype::int4));
    const double eight = accuracy("int8." + name, int8);
    worst = std::min(worst, eight);
    std::printf("%-11s%9.2f%14.2f%9.2f\n", name.c_str(), eight, accuracy("int4_weights." + name, weights),
                accuracy("int4." + name, int4));

    const auto costs = costs_of(model, {int8, int4}, some);  // of each layer alone
    for (const auto& cost : costs) {
      results.emplace_back(
          "cost." + std::string(quantization::name_of(cost.dtype)) + "." + name + "." + cost.path,
          at::scalar_tensor(cost.cost, at::kDouble));
    }
    if (method != Method::mse) continue;
    const auto mixed = quantization::mixed_precision(costs, {int8, int4}, kMixedBits);
    std::printf("%-11s%9.2f with %.0f bits a weight, the layers that cost least in int4\n", "mse, mixed",
                accuracy("mixed.mse", mixed), kMixedBits);
  }
  std::fflush(stdout);
  tap::storage::save_value(folder / "results.pt", results, options);
  return in_float - worst <= 5;
}

bool run(std::map<std::string, std::string>& given) {
  torch::manual_seed(1);
  const std::filesystem::path folder = given["--save"];
  Images images{read_training_set(given["--data"], std::stoll(given["--samples"])),
                read_training_set(given["--data"], std::stoll(given["--calibrate"])),
                read_test_set(given["--data"], std::stoll(given["--test"])), std::stoll(given["--epochs"])};
  tap::storage::save_value(
      folder / "counts.pt",
      tap::core::Value::Dict{{"calibration", at::scalar_tensor(images.calibration.size(), at::kLong)},
                             {"test", at::scalar_tensor(images.test.size(), at::kLong)}},
      tap::storage::SaveOptions().mkdir(true).overwrite(true));
  torch::nn::Sequential classifier = make_classifier();
  train(classifier, images.training, {images.epochs, kBatch}, [](const Step&) {});
  classifier->eval();
  bool right = study(classifier, images, folder / "classifier");
  if (given["--script"].empty()) return right;

  torch::jit::Module script = torch::jit::load(given["--script"]);
  for (Dataset* const set : {&images.training, &images.calibration, &images.test})
    set->images = set->images.expand({-1, 3, -1, -1});  // it takes colours
  train_script(script, images.training, images.epochs);
  torch::jit::Module folded = torch::jit::FoldConvBatchNorm(script);  // as one would in int8
  right = study(folded, images, folder / "script") && right;

  const torch::NoGradGuard no_grad;
  torch::jit::Module int8 = quantization::to_int8(script, [&](torch::jit::Module& observed) {
    for (const at::Tensor& batch : images.calibration.images.split(kBatch)) scores_of(observed, batch);
  });
  int8.save(folder / "script" / "int8.pt");
  const auto count = right_of(int8, images.test);
  std::printf("\nIn LibTorch's operators for int8: %.2f\n",
              100 * static_cast<double>(count) / static_cast<double>(images.test.size()));
  tap::storage::save_value(folder / "script" / "int8_right.pt", at::scalar_tensor(count, at::kLong),
                           tap::storage::SaveOptions().overwrite(true));
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"--data", "/usr/share/datasets/fashion-mnist"},
                                              {"--save", "int8"},
                                              {"--script", ""},
                                              {"--samples", "19200"},
                                              {"--calibrate", "256"},
                                              {"--test", "10000"},
                                              {"--epochs", "2"}};
  try {
    for (int i = 1; i + 1 < argc; i += 2) given.at(argv[i]) = argv[i + 1];
    return run(given) ? 0 : 1;
  } catch (const std::out_of_range&) {
    std::cerr << "usage: int8 [--script FILE.pt] [--data FOLDER] [--save FOLDER] [--samples N] "
                 "[--calibrate N] [--test N] [--epochs N]\n";
    return 2;
  } catch (const c10::Error& error) {
    std::cerr << "int8: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "int8: " << error.what() << "\n";
  }
  return 1;
}
