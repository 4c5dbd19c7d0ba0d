#pragma once

/// A small convolutional classifier and its training, in plain LibTorch without torchtap.

#include <torch/torch.h>

#include <cstdint>
#include <functional>

#include "idx.hpp"

/// Maps 28 × 28 images to the scores of ten classes.
torch::nn::Sequential make_classifier();

struct Training {
  std::int64_t epochs = 2;
  std::int64_t batch = 64;
  double learning_rate = 1e-3;
};

/// A training step after loss and gradients are computed and before the parameters change.
struct Step {
  std::int64_t index, count;
  at::Tensor images, labels;
  double loss;
};

/// Trains with Adam on batches reshuffled for each epoch. Calls `on_step` in every step.
void train(torch::nn::Sequential& classifier, const Dataset& data, const Training& training,
           const std::function<void(const Step&)>& on_step);
