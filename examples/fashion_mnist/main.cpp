// torchtap's main example. Code that knows nothing of torchtap (classifier.cpp) trains and tests a classifier
// on Fashion-MNIST, while recorders observe it from here. Prints a table, and writes a folder of recordings
// for Python (check.py) and a picture (figure.svg).

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include <torchtap/core/context.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/by.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/histogram.hpp>
#include <torchtap/reductions/last.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/min.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/series.hpp>
#include <torchtap/reductions/sum.hpp>
#include <torchtap/storage/file.hpp>

#include "arguments.hpp"
#include "classifier.hpp"
#include "figure.hpp"
#include "idx.hpp"
#include "ranks.hpp"
#include "terminal.hpp"

using namespace torchtap;              // recorders, reductions, selectors, storage
using namespace torchtap::reductions;  // Sum, Mean, …

namespace {

constexpr std::array<const char*, 10> kClasses = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"};
constexpr std::int64_t kTestBatch = 250;
const char* const kHidden = "relu3";  // the layer whose mean activation is recorded per class

/// All recorders of the classifier. Created before training, read after testing.
struct Recorders {
  /// Whether images are tested; false while training.
  bool tested = false;

  /// The inputs of each Linear, summed over all test images: [1568] and [64].
  recorders::ForwardPre linear_inputs{recorders::RecorderOptions()
                                          .condition([this] { return tested; })
                                          .reduction(Sum(SumOptions().over({0})))};
  /// The distribution of each ReLU's activations over images, channels and pixels. The histogram finds its
  /// range itself.
  recorders::ForwardOutput relus{recorders::RecorderOptions()
                                     .condition([this] { return tested; })
                                     .reduction(Series(Moments(MomentsOptions().over_all(true)),
                                                       Histogram(HistogramOptions(64).over_all(true))))};
  /// The outputs of every module, for the table. The last row is kept for its shape.
  recorders::ForwardOutput outputs{
      recorders::RecorderOptions()
          .condition([this] { return tested; })
          .reduction(Series(Moments(MomentsOptions().over_all(true)), Min(MinOptions().over_all(true)),
                            Max(MaxOptions().over_all(true)), Count(), Last(LastOptions().over({0}))))};
  /// The mean activation of one hidden layer over the images of each class: [10, 64].
  recorders::ForwardOutput class_means{recorders::RecorderOptions()
                                           .condition([this] { return tested; })
                                           .reduction(by("labels", 10, Mean(MeanOptions().over({0}))))};
  /// The norm of the gradient at each layer's output: one number per training step, all of them kept.
  recorders::BackwardOutput gradients{
      recorders::RecorderOptions().transform([](const at::Tensor& gradient) { return gradient.norm(); })};

  explicit Recorders(const torch::nn::Sequential& classifier) {
    linear_inputs.attach(classifier, selectors::types<torch::nn::Linear>());
    relus.attach(classifier, selectors::types<torch::nn::ReLU>());
    outputs.attach(classifier, selectors::leaves());
    gradients.attach(classifier, selectors::types<torch::nn::Conv2d, torch::nn::Linear>());
    class_means.attach(classifier, selectors::names(kHidden));
  }
  Recorders(const Recorders&) = delete;  // the conditions capture `tested`
  Recorders& operator=(const Recorders&) = delete;

  /// What was recorded while testing, of all ranks. Each of them trained the whole model.
  void merge() {
    ranks::merge(linear_inputs);
    ranks::merge(relus);
    ranks::merge(outputs);
    ranks::merge(class_means);
  }

  void save(const std::filesystem::path& folder) const {
    const auto options = storage::SaveOptions().mkdir(true).overwrite(true);
    linear_inputs.save(folder / "linear_inputs", options);
    relus.save(folder / "relus", options);
    outputs.save(folder / "outputs", options);
    gradients.save(folder / "gradients", options);
    class_means.save(folder / "class_means", options);
  }
};

/// The current parameters by name.
core::Value parameters_of(const torch::nn::Sequential& classifier) {
  core::Value::Dict parameters;
  for (const auto& parameter : classifier->named_parameters()) {
    parameters.emplace_back(parameter.key(), parameter->detach().clone());
  }
  return parameters;
}

/// Returns the number of correct predictions of this rank.
std::int64_t test(torch::nn::Sequential& classifier, const Dataset& data, bool& tested) {
  const torch::NoGradGuard no_grad;
  Progress progress;
  std::int64_t right = 0;
  const auto images = data.images.split(kTestBatch), labels = data.labels.split(kTestBatch);
  const auto batches = static_cast<std::int64_t>(images.size());
  classifier->eval();
  tested = true;
  for (std::int64_t i = ranks::rank(); i < batches; i += ranks::size()) {
    const core::Context named("labels", labels[i]);  // for class_means
    right += classifier->forward(images[i]).argmax(1).eq(labels[i]).sum().item<std::int64_t>();
    progress.show(i, batches, c10::str("testing   batch ", i + 1, " of ", batches));
  }
  tested = false;
  return right;
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel()};
}

std::vector<double> norms_of(const recorders::Subrecorder& gradients) {
  return numbers(torch::stack(gradients.tensors()));
}

double mean_of(const std::vector<double>& values, std::size_t first, std::size_t last) {
  return std::accumulate(values.begin() + first, values.begin() + last, 0.0) /
         static_cast<double>(last - first);
}

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

void print_table(Recorders& recorded) {
  Table table({"module", "type", "shape", "samples", "mean", "std", "min", "max", "zeros", "gradient norm"});
  for (const auto& module : recorded.outputs) {
    const auto value = [&](const char* name) { return module.tensor(name).item<double>(); };
    std::string shape;
    for (const auto size : module.tensor("last.value").sizes()) {
      shape += (shape.empty() ? "" : "×") + std::to_string(size);
    }
    std::string gradient;
    for (const auto& layer : recorded.gradients) {
      if (layer.path() != module.path()) continue;
      const auto norms = norms_of(layer);
      const std::size_t few = std::min<std::size_t>(10, norms.size());
      gradient = short_number(mean_of(norms, 0, few)) + " → " +
                 short_number(mean_of(norms, norms.size() - few, norms.size()));
    }
    table.add({module.path(), module.type(), shape, std::to_string(module.samples()),
               short_number(value("moments.mean")), short_number(std::sqrt(value("moments.variance"))),
               short_number(value("min.value")), short_number(value("max.value")),
               percent(value("count.zeros") / value("count.elements")), gradient});
  }
  std::cout << "\nOutput of each module while testing (a sample is one batch), and norm of the gradient\n"
               "there while training (means of the first and the last ten steps):\n\n";
  table.print();
}

/// The mean activations, with the units grouped by the class that excites them most.
figure::Heatmap heatmap_of(const recorders::Subrecorder& class_means) {
  figure::Heatmap map;
  std::vector<std::vector<double>> means;
  const at::Tensor value = class_means.tensor("value"), count = class_means.tensor("labels.count");
  for (std::size_t label = 0; label < kClasses.size(); ++label) {
    const auto row = static_cast<std::int64_t>(label);
    if (count[row].item<std::int64_t>() == 0) continue;  // with few test images
    map.row_labels.push_back(kClasses[label]);
    means.push_back(numbers(value[row]));
  }
  const auto units = static_cast<int>(means.at(0).size());
  std::vector<std::pair<std::pair<std::size_t, double>, int>> order;  // class, activation; unit
  for (int unit = 0; unit < units; ++unit) {
    std::size_t best = 0;
    for (std::size_t row = 1; row < means.size(); ++row) {
      if (means[row][unit] > means[best][unit]) best = row;
    }
    const double most = means[best][unit];
    order.push_back({{most > 0 ? best : means.size(), -most}, unit});
  }
  std::sort(order.begin(), order.end());
  std::int64_t silent = 0;
  for (const auto& [key, unit] : order) {
    map.column_labels.push_back(std::to_string(unit));
    const bool excited = key.first < means.size();
    map.column_groups.push_back(excited ? static_cast<int>(key.first) : -1);
    silent += excited ? 0 : 1;
  }
  for (const auto& row : means) {
    map.cells.emplace_back();
    for (const auto& [key, unit] : order) map.cells.back().push_back(row[unit]);
  }
  map.title = std::string("Mean activation of ") + kHidden + " for each class";
  map.columns =
      c10::str("the ", units, " units of ", kHidden, ", grouped by the class that excites them most");
  if (silent > 0)
    map.columns += c10::str("; the last ", silent, silent == 1 ? " is" : " are", " never active");
  map.value = "mean activation";
  return map;
}

figure::Page page_of(Recorders& recorded, const Arguments& arguments, double accuracy) {
  figure::Page page;
  page.title = "A small Fashion-MNIST classifier, as torchtap recorded it";
  page.subtitle =
      c10::str("trained with ", arguments.samples, " images × ", arguments.epochs,
               arguments.epochs == 1 ? " epoch" : " epochs", " in batches of ", arguments.batch, ", seed ",
               arguments.seed, "; tested with ", arguments.test, " images: ", percent(accuracy), " right");
  page.means = heatmap_of(recorded.class_means[0]);

  page.histograms_title = "Nonzero activations of the ReLUs";
  page.histograms_x = "activation";
  page.histograms_y = "share of all activations";
  for (const auto& relu : recorded.relus) {
    const double zeros = recorded.outputs.at(relu.path()).tensor("count.zeros").item<double>();
    std::vector<double> counts = numbers(relu.tensor("histogram.counts"));
    const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
    std::vector<double> edges = numbers(relu.tensor("histogram.edges"));
    for (std::size_t bin = 0; bin < counts.size(); ++bin) {
      if (edges[bin] <= 0 && 0 < edges[bin + 1]) counts[bin] -= zeros;
      counts[bin] /= all;
    }
    const std::string mean = short_number(relu.tensor("moments.mean").item<double>());
    const std::string deviation = short_number(std::sqrt(relu.tensor("moments.variance").item<double>()));
    page.histograms.push_back({relu.path(),
                               edges,
                               counts,
                               {percent(zeros / all) + " are zero", "mean " + mean + ", std " + deviation}});
  }

  page.curves_title =
      "Norm of the gradient at each layer's output (thin: every step; thick: the mean of 21 steps)";
  page.curves_x = "training step";
  page.curves_y = "norm of the gradient";
  for (const auto& layer : recorded.gradients) page.curves.push_back({layer.path(), norms_of(layer)});
  page.epochs = arguments.epochs;
  return page;
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream) throw std::runtime_error(path.string() + ": cannot be written");
}

void run(Arguments arguments) {
  const std::filesystem::path folder = arguments.save;
  std::filesystem::create_directories(folder);
  if (arguments.threads > 0) at::set_num_threads(static_cast<int>(arguments.threads));
  torch::manual_seed(static_cast<std::uint64_t>(arguments.seed));
  const Dataset training_set = read_training_set(arguments.data, arguments.samples);
  const Dataset test_set = read_test_set(arguments.data, arguments.test);
  arguments.samples = training_set.size();
  arguments.test = test_set.size();
  const auto options = storage::SaveOptions().overwrite(true);

  torch::nn::Sequential classifier = make_classifier();
  Recorders recorded(classifier);
  const bool writes = ranks::rank() == 0;
  // Still empty: fails now rather than after the training if it cannot be written.
  if (writes) recorded.save(folder);

  Progress progress;
  std::int64_t steps = 0;
  double smoothed = 0;
  train(classifier, training_set, {arguments.epochs, arguments.batch}, [&](const Step& step) {
    steps = step.count;
    smoothed = step.index == 0 ? step.loss : 0.95 * smoothed + 0.05 * step.loss;
    char text[100];
    std::snprintf(text, sizeof text, "training  step %lld of %lld, epoch %lld, loss %.3f",
                  static_cast<long long>(step.index + 1), static_cast<long long>(step.count),
                  static_cast<long long>(step.index * arguments.epochs / step.count + 1), smoothed);
    progress.show(step.index, step.count, text);
    if (writes &&
        (step.index == 0 || step.index + 1 == step.count)) {  // for check.py, which repeats these two
      const core::Value::Dict all = {
          {"parameters", parameters_of(classifier)}, {"images", step.images}, {"labels", step.labels}};
      if (step.index == 0) storage::save_value(folder / "first_step.pt", all, options);
      if (step.index + 1 == step.count) storage::save_value(folder / "last_step.pt", all, options);
    }
  });
  const std::int64_t right = ranks::sum(test(classifier, test_set, recorded.tested));
  recorded.merge();
  if (!writes) return;
  const double accuracy = static_cast<double>(right) / static_cast<double>(arguments.test);

  print_table(recorded);
  std::cout << "\ntest accuracy " << std::fixed << std::setprecision(4) << accuracy << " (" << right << " of "
            << arguments.test << ")\n";

  recorded.save(folder);
  storage::save_value(folder / "parameters.pt", parameters_of(classifier), options);
  write_text(folder / "figure.svg", figure::draw(page_of(recorded, arguments, accuracy)));
  std::ostringstream about;
  about << "{\"data\": " << std::quoted(std::filesystem::absolute(arguments.data).string())
        << ", \"samples\": " << arguments.samples << ", \"test\": " << arguments.test
        << ", \"test_batch\": " << kTestBatch << ", \"epochs\": " << arguments.epochs
        << ", \"batch\": " << arguments.batch << ", \"seed\": " << arguments.seed << ", \"steps\": " << steps
        << ", \"right\": " << right << "}\n";
  write_text(folder / "run.json", about.str());
  std::cout << "recordings: " << arguments.save << "\nfigure:     " << (folder / "figure.svg").string()
            << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (const auto arguments = parse_arguments(argc, argv)) run(*arguments);
    return 0;
  } catch (const std::invalid_argument& error) {
    std::cerr << "fashion_mnist: " << error.what() << "; --help lists the options\n";
    return 2;
  } catch (const c10::Error& error) {
    std::cerr << "fashion_mnist: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "fashion_mnist: " << error.what() << "\n";
  }
  return 1;
}
