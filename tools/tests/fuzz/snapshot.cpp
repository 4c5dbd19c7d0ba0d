#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "corpus.hpp"

namespace fuzz {
namespace {

using namespace torchtap;

struct Recorded {
  torch::nn::Sequential model{torch::nn::ReLU(), torch::nn::ReLU()};
  recorders::ForwardOutput outputs{recorders::RecorderOptions().reduction(
      reductions::Series(reductions::Moments{}, reductions::Histogram(reductions::HistogramOptions(4)),
                         reductions::Quantiles{}))};
  Recorded() { outputs.modules(*model); }
};

}  // namespace

void write_snapshot(const std::string& file) {
  Recorded recorded;
  for (int i = 0; i < 3; ++i) recorded.model->forward(at::full({3}, i));
  recorded.outputs.snapshot(file);
}

void restore_snapshot(const std::string& file) {
  Recorded recorded;
  recorded.outputs.restore(file);
  for (auto& subrecorder : recorded.outputs) subrecorder.value();
  recorded.model->forward(at::ones({3}));
}

}  // namespace fuzz
