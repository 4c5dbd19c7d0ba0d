// Tells handwritten digits from the clothes that a classifier was trained with, by its features: by minus the
// Mahalanobis distance to the nearest class (Lee et al. 2018), by the same relative to all classes as one
// (Ren et al. 2021), and by the largest softmax probability (Hendrycks & Gimpel 2017). One recorder has the
// mean and the covariance of each class after a pass over the training images. Writes a folder for check.py.
//
// usage: unfamiliar DIGITS [options of fashion_mnist]    DIGITS is a file that digits.py writes
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>

#include <torchtap/core/context.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/by.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/covariance.hpp>
#include <torchtap/storage/file.hpp>

#include "../fashion_mnist/arguments.hpp"
#include "../fashion_mnist/classifier.hpp"
#include "../fashion_mnist/idx.hpp"
#include "../fashion_mnist/terminal.hpp"

namespace tap = torchtap;
using namespace torchtap::reductions;  // by, Count, Covariance

namespace {

constexpr std::int64_t kBatch = 500;
const char* const kFeatures = "relu3";  // the penultimate layer
const char* const kScores = "fc2";

Dataset read_digits(const std::string& path) {
  TORCH_CHECK_VALUE(std::filesystem::exists(path), path,
                    ": no such file; python3 examples/unfamiliar/digits.py ", path, " writes it.");
  const at::Tensor images = read_idx(path, 100'000);
  TORCH_CHECK_VALUE(images.dim() == 3 && images.size(1) == 28 && images.size(2) == 28, path, ": has shape ",
                    images.sizes(), " and not [N, 28, 28].");
  return {as_input(images), at::full({images.size(0)}, -1, at::kLong)};  // of no class
}

/// Runs all images through the classifier and keeps its features and scores.
tap::recorders::ForwardOutput run(torch::nn::Sequential& classifier, const Dataset& data) {
  const torch::NoGradGuard no_grad;
  tap::recorders::ForwardOutput kept;
  kept.attach(classifier, tap::selectors::names(kFeatures, kScores));
  const auto images = data.images.split(kBatch), labels = data.labels.split(kBatch);
  for (std::size_t i = 0; i < images.size(); ++i) {
    const tap::core::Context named("labels", labels[i]);
    classifier->forward(images[i]);
  }
  kept.detach();
  return kept;
}

at::Tensor all_of(const tap::recorders::ForwardOutput& kept, const char* layer) {
  return torch::cat(kept.at(layer).tensors()).to(at::kDouble);
}

/// Normal distributions that share one covariance.
class Gaussians {
 public:
  Gaussians(at::Tensor means, const at::Tensor& covariance)
      : means_(std::move(means)),
        // A unit that no training image activates has variance 0: the pseudoinverse leaves it out.
        precision_(at::linalg_pinv(covariance, 1e-14, /*hermitian=*/true)) {}

  /// The squared Mahalanobis distance of each row to the nearest mean: [N].
  at::Tensor distance(const at::Tensor& rows) const {
    const at::Tensor away = rows.unsqueeze(1) - means_;  // [N, means, 64]
    return (away.matmul(precision_) * away).sum(2).amin(1);
  }

 private:
  at::Tensor means_, precision_;  // [means, 64], [64, 64]
};

/// The classes, and all training images as one class.
struct Distributions {
  Gaussians classes, all;
};

/// `within`, the covariance around the means of the classes, pools their covariances. Total minus `between`
/// would be the same matrix from one covariance instead of ten, but where classes are far apart it is a small
/// difference of large matrices, and may have negative eigenvalues. Sums have neither fault, so the total is
/// within + between.
Distributions distributions_of(const tap::recorders::Subrecorder& layer) {
  const at::Tensor count = layer.tensor("labels.count").to(at::kDouble).unsqueeze(1);
  TORCH_CHECK_VALUE(count.min().item<double>() > 0, "a class has no training image: more --samples.");
  const at::Tensor share = count / count.sum(), means = layer.tensor("mean");
  const at::Tensor mean = (share * means).sum(0, /*keepdim=*/true), away = means - mean;
  const at::Tensor within = (share.unsqueeze(2) * layer.tensor("covariance")).sum(0);
  const at::Tensor between = away.t().mm(share * away);
  return {Gaussians(means, within), Gaussians(mean, within + between)};
}

/// The probability that a familiar image has the larger score, by ranks; half of it where they are equal.
double auroc(const at::Tensor& familiar, const at::Tensor& unfamiliar) {
  const at::Tensor sorted = std::get<0>(unfamiliar.sort());
  const at::Tensor below = at::searchsorted(sorted, familiar, /*out_int32=*/false, /*right=*/false),
                   up_to = at::searchsorted(sorted, familiar, /*out_int32=*/false, /*right=*/true);
  return (below + up_to).to(at::kDouble).mean().item<double>() / 2 / static_cast<double>(sorted.size(0));
}

double entropy(const at::Tensor& shares) {
  return -at::xlogy(shares, shares).sum().item<double>();
}

/// Of two classifications, in nats, from the counts of their pairs.
double mutual_information(const at::Tensor& counts) {
  const at::Tensor shares = counts.to(at::kDouble) / counts.sum();
  return entropy(shares.sum(0)) + entropy(shares.sum(1)) - entropy(shares);
}

void run(const std::string& digits_file, const Arguments& arguments) {
  const std::filesystem::path folder = arguments.save;
  const auto options = tap::storage::SaveOptions().mkdir(true).overwrite(true);
  if (arguments.threads > 0) at::set_num_threads(static_cast<int>(arguments.threads));
  torch::manual_seed(static_cast<std::uint64_t>(arguments.seed));
  const Dataset digits = read_digits(digits_file);
  const Dataset training_set = read_training_set(arguments.data, arguments.samples);
  const Dataset test_set = read_test_set(arguments.data, arguments.test);

  torch::nn::Sequential classifier = make_classifier();
  Progress progress;
  train(classifier, training_set, {arguments.epochs, arguments.batch}, [&](const Step& step) {
    progress.show(step.index, step.count, c10::str("training  step ", step.index + 1, " of ", step.count));
  });
  classifier->eval();

  // Divided by n, so that a class of one image has covariance 0.
  tap::recorders::ForwardOutput classes(
      by("labels", 10, Covariance(CovarianceOptions().over({0}).unbiased(false))));
  classes.attach(classifier, tap::selectors::names(kFeatures));
  const auto training = run(classifier, training_set);
  classes.detach();

  // Predictions are known only when the forward ends: the scores wait for them.
  tap::recorders::ForwardOutput confusion(
      tap::recorders::RecorderOptions()
          .with("prediction",
                tap::recorders::output("/").map([](const at::Tensor& y) { return y.argmax(1); }))
          .reduction(by("labels", 10, by("prediction", 10, Count(CountOptions().over({0}))))));
  confusion.attach(classifier, tap::selectors::names(kScores));
  const auto familiar = run(classifier, test_set);
  confusion.detach();

  const auto unfamiliar = run(classifier, digits);

  const auto where = [](const std::string& path) {
    return tap::core::Value(std::filesystem::absolute(path).string());
  };
  tap::core::Value::Dict results = {{"data", where(arguments.data)}, {"digits", where(digits_file)}};
  const auto compare = [&](const char* score, const auto& of) {
    const at::Tensor known = of(familiar), unknown = of(unfamiliar);
    const double area = auroc(known, unknown);
    results.emplace_back(score, tap::core::Value::Dict{{"familiar", known},
                                                       {"unfamiliar", unknown},
                                                       {"auroc", at::scalar_tensor(area, at::kDouble)}});
    return area;
  };
  const Distributions of_training = distributions_of(classes.at(kFeatures));
  const double nearest = compare("mahalanobis", [&](const auto& kept) {
    return -of_training.classes.distance(all_of(kept, kFeatures));
  });
  const double relative = compare("relative", [&](const auto& kept) {
    const at::Tensor features = all_of(kept, kFeatures);
    return of_training.all.distance(features) - of_training.classes.distance(features);
  });
  const double softmax =
      compare("softmax", [](const auto& kept) { return all_of(kept, kScores).softmax(1).amax(1); });

  const at::Tensor counts = confusion.at(kScores).tensor("prediction.count");  // [label, prediction]
  const double information = mutual_information(counts);
  results.emplace_back("mutual_information", at::scalar_tensor(information, at::kDouble));

  std::printf("%.2f %% of %lld test images are classified right; label and prediction share %.3f nats\n",
              100 * counts.diagonal().sum().item<double>() / static_cast<double>(test_set.size()),
              static_cast<long long>(test_set.size()), information);
  std::printf("AUROC, test images against %lld handwritten digits:\n", static_cast<long long>(digits.size()));
  std::printf("  Mahalanobis distance to the nearest class       %.4f\n", nearest);
  std::printf("  the same, less the distance to all classes      %.4f\n", relative);
  std::printf("  largest softmax probability                     %.4f\n", softmax);

  classes.save(folder / "classes", options);
  confusion.save(folder / "confusion", options);
  training.save(folder / "training", options);
  familiar.save(folder / "familiar", options);
  unfamiliar.save(folder / "unfamiliar", options);
  tap::core::Value::Dict parameters;
  for (const auto& parameter : classifier->named_parameters()) {
    parameters.emplace_back(parameter.key(), parameter->detach());
  }
  tap::storage::save_value(folder / "parameters.pt", parameters, options);
  tap::storage::save_value(folder / "results.pt", results, options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2 || argv[1][0] == '-') {
      throw std::invalid_argument("usage: unfamiliar DIGITS [options of fashion_mnist]");
    }
    if (const auto arguments = parse_arguments(argc - 1, argv + 1)) run(argv[1], *arguments);
    return 0;
  } catch (const std::invalid_argument& error) {
    std::cerr << "unfamiliar: " << error.what() << "\n";
    return 2;
  } catch (const c10::Error& error) {
    std::cerr << "unfamiliar: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "unfamiliar: " << error.what() << "\n";
  }
  return 1;
}
