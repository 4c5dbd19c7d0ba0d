#include <CLI/CLI.hpp>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/quantization/fake_quantize.hpp>
#include <torchtap/quantization/sensitivity.hpp>

#include "accuracy.hpp"
#include "commands.hpp"
#include "files/json.hpp"
#include "models/call_watch.hpp"
#include "models/inputs.hpp"
#include "models/model.hpp"
#include "options/option_checks.hpp"
#include "recordings/recordings.hpp"
#include "terminal/message_text.hpp"
#include "terminal/progress.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

std::string evaluate_examples() {
  return c10::str(R"(
Says how many images a classifier gets right: any TorchScript file, also one that computes in int8. top-1: the label has
the highest score; top-5: one of the five highest.

--quantize FILE rounds activations and weights as torchtap calibrate chose, in a copy of the model that still computes in
floating point, and says how many images are right then, and how many changed their class. --sensitivity rounds one layer
after the other, everything else in floating point: "error" is the squared error of the model's output relative to its
square, by which layers are sorted, and "top-1 lost" what the layer alone costs. It runs the model, or what comes after
the layer, twice for each layer and file; fewer images (--count) may be enough.

The labels are the numbers of the classes from 0 up, one for each image, split as the inputs are.

)",
                  describe_inputs(), R"(

Examples:
  torchtap evaluate model.pt --idx3 t10k-images.gz --labels t10k-labels.gz
  torchtap evaluate model.pt --quantize int8.json --idx3 t10k-images.gz --labels t10k-labels.gz --sensitivity
  torchtap evaluate model.pt --quantize mse.json --quantize entropy.json --idx3 t10k-images.gz --labels t10k-labels.gz
  torchtap evaluate model.int8.pt --input images.npy --labels labels.npy --batch 64 --json

Exit status: 0, or 2 if something cannot be read, or the model cannot be run.)");
}

struct EvaluateOptions {
  std::string model;
  InputOptions inputs;
  std::string labels;
  std::vector<std::string> quantize;
  std::int64_t count = 0;  // batches; 0: all
  bool sensitivity = false;
  bool json = false;
};

/// Batches and their labels by number. In order, each is read once.
class LabelledBatches {
 public:
  explicit LabelledBatches(const EvaluateOptions& options) : given_(options.inputs) {
    given_.count = std::max<std::int64_t>(options.count, 1);  // of random batches
    labels_given_.files = {options.labels};
    labels_given_.batch = given_.batch;
    labels_given_.batches = given_.batches;
    rewind();
    count_ = inputs_->count();
    TORCH_CHECK_VALUE(labels_->count() == count_ || !given_.random.empty(), "--labels: the file has ",
                      labels_->count(), " batches, the inputs have ", count_,
                      "; it needs a label for each image, and --batch splits both.");
    if (options.count != 0) count_ = std::min(count_, options.count);
  }

  std::int64_t count() const { return count_; }
  const Batch& inputs(std::int64_t number) { return move_to(number), batch_; }
  const at::Tensor& labels(std::int64_t number) { return move_to(number), labels_of_batch_; }

 private:
  void rewind() {
    inputs_.emplace(given_);
    labels_.emplace(labels_given_);
    number_ = -1;
  }
  void move_to(std::int64_t number) {
    if (number < number_) rewind();
    for (; number_ < number; ++number_) {
      batch_ = inputs_->next().value();
      const auto labels = labels_->next();
      TORCH_CHECK_VALUE(labels && labels->size() == 1 && labels->front().is_tensor(),
                        "--labels: expected one tensor for each batch.");
      labels_of_batch_ = labels->front().tensor();
    }
  }

  InputOptions given_, labels_given_;
  std::optional<Inputs> inputs_, labels_;
  std::int64_t count_ = 0, number_ = -1;
  Batch batch_;
  at::Tensor labels_of_batch_;
};

/// The model in floating point, or rounded by a calibration.
struct Variant {
  std::string file;
  torch::jit::Module model;
  quantization::Calibration calibration;
  quantization::FakeQuantized rounded;
  Accuracy accuracy;
  std::int64_t changed = 0;
};

Variant variant_of(const std::string& model, const std::string& calibration) {
  Variant variant;
  variant.file = calibration.empty() ? model : calibration;
  variant.model = load_model(model);
  variant.model.eval();
  if (calibration.empty()) return variant;
  variant.calibration = quantization::Calibration::load(calibration);
  variant.rounded = quantization::fake_quantize(variant.model, variant.calibration);
  return variant;
}

/// Runs all variants on the same images, the one in floating point first.
void measure_accuracy(std::vector<Variant>& variants, LabelledBatches& batches) {
  Progress progress("evaluating", batches.count());
  for (std::int64_t i = 0; i < batches.count(); ++i) {
    at::Tensor expected;
    for (Variant& variant : variants) {
      const auto arguments =
          copies(to_arguments(variant.model, "forward", batches.inputs(i), at::kCPU, false));
      const at::Tensor ranking = ranking_of(call(variant.model, "forward", arguments));
      if (!expected.defined()) expected = ranking;
      variant.accuracy.add(ranking, batches.labels(i));
      variant.changed += ranking.select(1, 0).ne(expected.select(1, 0)).sum().item<std::int64_t>();
    }
    progress.advance();
  }
}

struct Cost {
  std::string file;
  quantization::LayerCost error;
  double lost = 0;  // share of the images
};

/// The cost of the layers by each calibration; the largest squared error first.
std::vector<Cost> costs_of_layers(const std::vector<Variant>& variants, LabelledBatches& batches) {
  quantization::Data data;
  data.batches = batches.count();
  data.batch = [&](std::int64_t number) {
    const Batch& batch = batches.inputs(number);
    TORCH_CHECK_VALUE(batch.size() == 1 && batch.front().is_tensor(),
                      "--sensitivity is for models with one input, a tensor.");
    return batch.front().tensor().clone();
  };
  Progress progress("measuring layers");
  const auto error = [&](const at::Tensor& output, const at::Tensor& expected, std::int64_t batch) {
    progress.advance();
    return quantization::relative_squared_error(output, expected, batch);
  };
  // The mean over the batches (the last may be smaller) becomes the share of all images.
  const double scale = variants.front().accuracy.share(batches.count());
  const auto wrong = [&](const at::Tensor& output, const at::Tensor&, std::int64_t batch) {
    progress.advance();
    Accuracy accuracy;
    accuracy.add(ranking_of(output), batches.labels(batch));
    return -static_cast<double>(accuracy.first) * scale;
  };
  const torch::jit::Module& model = variants.front().model;
  std::vector<Cost> costs;
  for (std::size_t i = 1; i < variants.size(); ++i) {
    const auto errors = quantization::sensitivity(model, {variants[i].calibration}, data, error);
    const auto lost = quantization::sensitivity(model, {variants[i].calibration}, data, wrong);
    for (std::size_t j = 0; j < errors.size(); ++j)
      costs.push_back({variants[i].file, errors[j], lost[j].cost});
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const Cost& a, const Cost& b) { return a.error.cost > b.error.cost; });
  return costs;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", share * 100);
  return text;
}

/// The weights that the calibration leaves in floating point: parameters of two dimensions or more.
std::vector<std::string> unrounded(const Variant& variant) {
  std::set<std::string> rounded;
  for (const auto& tensor : variant.calibration) {
    if (tensor.weights) rounded.insert(tensor.path);
  }
  std::set<const void*> known;
  std::vector<std::string> left;
  for (const bool quantized : {true, false}) {  // a shared one is rounded with either module
    for (const auto& module : model::walk_modules(variant.model)) {
      if ((rounded.count(module.path()) != 0) != quantized) continue;
      for (const auto& [name, weight, buffer] : model::held_by(module)) {
        if (buffer || weight.dim() < 2 || !weight.is_floating_point()) continue;
        if (known.insert(weight.unsafeGetTensorImpl()).second && !quantized)
          left.push_back(module.path().empty() ? name : module.path() + "." + name);
      }
    }
  }
  return left;
}

/// The names, up to a limit.
std::string first_names(std::vector<std::string> names) {
  constexpr std::size_t kMost = 12;
  const std::size_t all = names.size();
  if (all > kMost) names.resize(kMost);
  return printable(base::quoted(names)) + (all > kMost ? c10::str(" (and ", all - kMost, " more)") : "");
}

void print_evaluation(const std::vector<Variant>& variants, const std::vector<Cost>& costs) {
  using Align = Table::Align;
  std::vector<Table::Column> titles{{"model", Align::left, Table::kAlways, 16, true},
                                    {"images", Align::right},
                                    {"top-1", Align::right},
                                    {"top-5", Align::right},
                                    {"changed class", Align::right}};
  const bool rounds = variants.size() > 1;
  if (rounds) {
    titles.push_back({"activations", Align::right, 40});
    titles.push_back({"weights", Align::right, 40});
  }
  Table models(titles);
  for (const Variant& variant : variants) {
    const Accuracy& accuracy = variant.accuracy;
    const bool plain = &variant == &variants.front();
    std::vector<std::string> line{variant.file, count_text(accuracy.images),
                                  percent(accuracy.share(accuracy.first)),
                                  accuracy.classes > 5 ? percent(accuracy.share(accuracy.among_five)) : "-",
                                  plain ? "-" : count_text(variant.changed)};
    if (rounds) {
      const std::int64_t weights = variant.rounded.weights();
      const auto all = weights + static_cast<std::int64_t>(unrounded(variant).size());
      line.push_back(plain ? "-" : count_text(variant.rounded.activations()));
      line.push_back(plain ? "-" : c10::str(weights, " of ", all));
    }
    models.add(std::move(line));
  }
  models.print(std::cout);
  for (const Variant& variant : variants) {
    const auto left = unrounded(variant);
    if (&variant != &variants.front() && !left.empty())
      print_wrapped(std::cout, c10::str("Left in floating point by ", printable(variant.file), ": ",
                                        first_names(left), "."));
  }
  if (costs.empty()) return;
  std::cout << '\n';
  Table layers({{"layer", Align::left, Table::kAlways, 16, true},
                {"type", Align::left, 60},
                {"dtype"},
                {"error", Align::right},
                {"top-1 lost", Align::right},
                {"by", Align::left, 80, 12, true}});
  for (const auto& [file, error, lost] : costs) {
    layers.add({shown_path(error.path), error.type, std::string(name_of(error.dtype)), to_text(error.cost, 3),
                percent(lost), file});
  }
  layers.print(std::cout);
}

void print_evaluation_json(const std::vector<Variant>& variants, const std::vector<Cost>& costs) {
  Json models = Json::array(), layers = Json::array();
  for (const Variant& variant : variants) {
    const Accuracy& accuracy = variant.accuracy;
    models.push_back(
        {{"file", variant.file},
         {"activations", variant.rounded.activations()},
         {"weights", variant.rounded.weights()},
         {"top1", accuracy.share(accuracy.first)},
         {"top5", accuracy.classes > 5 ? Json(accuracy.share(accuracy.among_five)) : Json(nullptr)},
         {"changed", variant.changed}});
    if (&variant != &variants.front()) models.back()["left_in_floating_point"] = unrounded(variant);
  }
  for (const auto& [file, error, lost] : costs) {
    layers.push_back({{"file", file},
                      {"path", error.path},
                      {"type", error.type},
                      {"dtype", std::string(name_of(error.dtype))},
                      {"error", error.cost},
                      {"top1_lost", lost},
                      {"weights", error.weights}});
  }
  print(Json{{"images", variants.front().accuracy.images},
             {"classes", variants.front().accuracy.classes},
             {"models", std::move(models)},
             {"layers", std::move(layers)}});
}

}  // namespace

void add_evaluate(CLI::App& app) {
  auto options = std::make_shared<EvaluateOptions>();
  CLI::App* command =
      app.add_subcommand("evaluate", "Say how often a classifier is right, and what quantization costs");
  command->footer(evaluate_examples());
  command->add_option("model", options->model, "A file of torch.jit.script or torch.jit.trace")->required();
  add_input_options(*command, options->inputs, /*one_call=*/true);
  command->add_option("--count", options->count, "End after this many batches")->transform(whole_number(1));
  command->add_option("--labels", options->labels, "The class of each image: MNIST's idx, .npy or .pt")
      ->required()
      ->check(CLI::ExistingFile);
  add_library_option(*command);
  auto* quantize = command->add_option("--quantize", options->quantize,
                                       "A file of torchtap calibrate, to round by; may be repeated");
  quantize->allow_extra_args(false)->check(CLI::ExistingFile);
  command->add_flag("--sensitivity", options->sensitivity, "What each layer alone costs")->needs(quantize);
  command->add_flag("--json", options->json, "Write JSON");
  command->callback([options] {
    const at::AutoGradMode without_gradients(false);
    LabelledBatches batches(*options);
    std::vector<Variant> variants;
    variants.push_back(variant_of(options->model, ""));
    for (const auto& file : options->quantize) variants.push_back(variant_of(options->model, file));
    measure_accuracy(variants, batches);
    const auto costs = options->sensitivity ? costs_of_layers(variants, batches) : std::vector<Cost>();
    options->json ? print_evaluation_json(variants, costs) : print_evaluation(variants, costs);
  });
}

}  // namespace torchtap::tools
