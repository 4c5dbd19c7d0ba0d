// Dumps rows of every layer of a classifier on Fashion-MNIST with the label and the number of each image, for
// probes: how well does a linear map tell the classes at each depth? (probes.py trains them.)
//
// usage: linear_probes [DIR] [options of fashion_mnist]     writes DIR/dump; DIR is "probes" unless given
#include <torch/torch.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/rows/rows.hpp>

#include "../fashion_mnist/arguments.hpp"
#include "../fashion_mnist/classifier.hpp"

namespace tap = torchtap;

namespace {

/// Runs the test images, in batches of which the last one is smaller.
void dump_rows(torch::nn::Sequential& classifier, const Dataset& data, const std::string& directory) {
  tap::recorders::ForwardOutput dump(
      tap::recorders::RecorderOptions()
          .transform([](const at::Tensor& x) { return x.flatten(1); })  // an image is a row of each layer
          .rows({0})
          .beside({"label", "id"})
          .spool(directory, tap::storage::SpoolOptions().mkdir(true).overwrite(true)));
  dump.attach(classifier, !tap::selectors::depth(0));
  const torch::NoGradGuard no_grad;
  constexpr std::int64_t kBatch = 300;
  for (std::int64_t first = 0; first < data.size(); first += kBatch) {
    const std::int64_t end = std::min(first + kBatch, data.size());
    const tap::core::Context named(
        {{"label", data.labels.slice(0, first, end)}, {"id", torch::arange(first, end, torch::kLong)}});
    classifier->forward(data.images.slice(0, first, end));
  }
}

int run(const std::string& directory, const Arguments& arguments) {
  torch::manual_seed(static_cast<std::uint64_t>(arguments.seed));
  if (arguments.threads > 0) torch::set_num_threads(static_cast<int>(arguments.threads));
  torch::nn::Sequential classifier = make_classifier();
  const Dataset training = read_training_set(arguments.data, arguments.samples);
  train(classifier, training, {arguments.epochs, arguments.batch}, [](const Step&) {});
  classifier->eval();
  const Dataset test = read_test_set(arguments.data, arguments.test);
  dump_rows(classifier, test, directory + "/dump");

  std::printf("%-10s %10s %8s   first row: label, image\n", "layer", "rows", "width");
  const tap::storage::Recording recording = tap::storage::load(directory + "/dump");
  for (const auto& entry : recording) {
    if (tap::storage::is_beside(entry.kind())) continue;
    const tap::rows::Rows rows(entry);
    std::printf("%-10s %10lld %8lld   %lld, %lld\n", entry.path().c_str(),
                static_cast<long long>(rows.size()), static_cast<long long>(rows.shape().front()),
                static_cast<long long>(rows.beside("label")[0].item<std::int64_t>()),
                static_cast<long long>(rows.beside("id")[0].item<std::int64_t>()));
    if (rows.size() != test.size() || !rows.beside("label").equal(test.labels)) {
      std::fprintf(stderr, "the labels are not those of the images\n");
      return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string directory = "probes";
  std::vector<char*> rest{argv[0]};
  for (int i = 1; i < argc; ++i) {
    if (i == 1 && argv[i][0] != '-') {
      directory = argv[i];
    } else {
      rest.push_back(argv[i]);
    }
  }
  try {
    const auto arguments = parse_arguments(static_cast<int>(rest.size()), rest.data());
    return arguments ? run(directory, *arguments) : 0;
  } catch (const std::exception& error) {
    std::cerr << "linear_probes: " << error.what() << '\n';
    return 2;
  }
}
