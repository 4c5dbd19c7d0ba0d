#pragma once

/// A small convolutional classifier and its training, in plain LibTorch: nothing here knows of torchtap.

#include <torch/torch.h>

#include <cstdint>
#include <functional>

#include "idx.hpp"

/// 28 × 28 images to the scores of ten classes.
torch::nn::Sequential make_classifier();

struct Training {
  std::int64_t epochs = 2;
  std::int64_t batch = 64;
  double learning_rate = 1e-3;
};

/// One step of the training, when loss and gradients are known and the parameters have not changed yet.
struct Step {
  std::int64_t index, count;
  at::Tensor images, labels;
  double loss;
};

/// Trains with Adam on batches drawn anew for each epoch. Calls `on_step` in every step.
void train(torch::nn::Sequential& classifier, const Dataset& data, const Training& training,
           const std::function<void(const Step&)>& on_step);
