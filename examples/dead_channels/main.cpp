// Removes the channels of a classifier that never fire, as training with a large step leaves them behind. A
// recorder finds them: the maximum of each channel of each ReLU over all training images. The classifier
// without them gives the same scores, and a report says what it saves.
//
// usage: dead_channels [options of fashion_mnist]
#include <torch/torch.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/views/report/report.hpp>

#include "../fashion_mnist/arguments.hpp"
#include "../fashion_mnist/classifier.hpp"

namespace nn = torch::nn;
namespace tap = torchtap;
namespace report = torchtap::views::report;

namespace {

at::Tensor scores_of(nn::Sequential& classifier, const at::Tensor& images) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> scores;
  for (const at::Tensor& batch : images.split(250)) scores.push_back(classifier->forward(batch));
  return torch::cat(scores);
}

/// For each of the three ReLUs, the channels that fire for any of the images.
std::vector<at::Tensor> living_channels(nn::Sequential& classifier, const at::Tensor& images) {
  using namespace tap::reductions;
  tap::recorders::ForwardOutput maps(Max(MaxOptions().over({0, 2, 3})));
  tap::recorders::ForwardOutput rows(Max(MaxOptions().over({0})));
  maps.attach(classifier, tap::selectors::names("relu1", "relu2"));
  rows.attach(classifier, tap::selectors::names("relu3"));
  scores_of(classifier, images);
  std::vector<at::Tensor> living;
  for (const at::Tensor& largest : {maps[0].tensor(), maps[1].tensor(), rows[0].tensor()}) {
    living.push_back(largest.gt(0).nonzero().squeeze(1));
  }
  return living;
}

/// The part of a weight that computes some of its outputs from some of its inputs.
at::Tensor part(const at::Tensor& weight, const at::Tensor& outputs, const at::Tensor& inputs) {
  return weight.detach().index_select(0, outputs).index_select(1, inputs);
}

template <class Layer>
void keep(nn::Sequential& classifier, std::size_t index, const at::Tensor& outputs,
          const at::Tensor& inputs) {
  auto& layer = *classifier->ptr<Layer>(index);
  layer.weight.set_data(part(layer.weight, outputs, inputs));
  layer.bias.set_data(layer.bias.detach().index_select(0, outputs));
}

/// A copy of the classifier that has only these channels.
nn::Sequential without_the_others(const nn::Sequential& classifier, const std::vector<at::Tensor>& living) {
  nn::Sequential small(std::dynamic_pointer_cast<nn::SequentialImpl>(classifier->clone()));
  const at::Tensor pixels = torch::arange(49);  // a channel of pool2 is 7 × 7 inputs of fc1
  const at::Tensor flat = (living[1].unsqueeze(1) * 49 + pixels).flatten();
  keep<nn::Conv2dImpl>(small, 0, living[0], torch::arange(1));
  keep<nn::Conv2dImpl>(small, 3, living[1], living[0]);
  keep<nn::LinearImpl>(small, 7, living[2], flat);
  keep<nn::LinearImpl>(small, 9, torch::arange(10), living[2]);
  return small;
}

report::Measurements measure(nn::Sequential& classifier, const at::Tensor& images) {
  const torch::NoGradGuard no_grad;
  report::Report costs(*classifier.ptr(), report::ReportOptions().warmup(2));
  for (int repeat = 0; repeat < 12; ++repeat) {
    const auto recording = costs.record();
    classifier->forward(images);
  }
  return costs.results();
}

/// Each layer, before and after.
void print(const report::Measurements& before, const report::Measurements& after) {
  std::printf("%-8s %21s %18s %20s\n", "layer", "parameters", "million MACs", "milliseconds");
  const auto row = [](const std::string& name, const report::ModuleRow& old, const report::ModuleRow& now) {
    const auto millions = [](const report::ModuleRow& of) {
      return static_cast<double>(of.forward.work.macs) / 1e6;
    };
    std::printf("%-8s %9lld → %9lld %8.2f → %7.2f %9.2f → %8.2f\n", name.c_str(),
                static_cast<long long>(old.parameters), static_cast<long long>(now.parameters), millions(old),
                millions(now), 1e3 * old.forward.inclusive.median, 1e3 * now.forward.inclusive.median);
  };
  for (std::size_t i = 0; i < before.root.children.size(); ++i) {
    row(before.root.children[i].name, before.root.children[i], after.root.children.at(i));
  }
  row("all", before.root, after.root);
}

bool run(const Arguments& arguments) {
  torch::manual_seed(static_cast<std::uint64_t>(arguments.seed));
  if (arguments.threads > 0) at::set_num_threads(static_cast<int>(arguments.threads));
  nn::Sequential classifier = make_classifier();
  const Dataset training_set = read_training_set(arguments.data, arguments.samples);
  const Dataset test_set = read_test_set(arguments.data, arguments.test);
  train(classifier, training_set, {arguments.epochs, arguments.batch, /*learning_rate=*/1e-2},
        [](const Step&) {});
  classifier->eval();

  const auto living = living_channels(classifier, training_set.images);
  for (std::size_t i = 0; i < living.size(); ++i) {
    std::printf("relu%zu: %lld channels fire\n", i + 1, static_cast<long long>(living[i].numel()));
  }
  nn::Sequential small = without_the_others(classifier, living);
  const at::Tensor large_scores = scores_of(classifier, training_set.images);
  const double difference = (scores_of(small, training_set.images) - large_scores).abs().max().item<double>();
  const double relative = difference / large_scores.abs().max().item<double>();

  const auto right = [&](nn::Sequential& model) {
    return static_cast<long long>(
        scores_of(model, test_set.images).argmax(1).eq(test_set.labels).sum().item<std::int64_t>());
  };
  const at::Tensor batch = test_set.images.slice(0, 0, 64);
  const report::Measurements before = measure(classifier, batch), after = measure(small, batch);
  std::printf("\nA forward of %lld images:\n\n", static_cast<long long>(batch.size(0)));
  print(before, after);
  std::printf(
      "\nLargest difference of a score: %.1e of the largest score, from another order of summation.\n"
      "%lld of %lld test images are right before and %lld after.\n",
      relative, right(classifier), static_cast<long long>(test_set.size()), right(small));
  return relative < 1e-5 && after.root.parameters < before.root.parameters &&
         after.root.forward.work.macs < before.root.forward.work.macs;
}

}  // namespace

int main(int argc, char** argv) try {
  const auto arguments = parse_arguments(argc, argv);
  return !arguments || run(*arguments) ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "dead_channels: " << error.what() << "\n";
  return 1;
}
