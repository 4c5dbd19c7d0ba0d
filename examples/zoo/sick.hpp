#pragma once

/// A small network that has what rules look for (views/rules/README.md), each in a module of its own.

#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

namespace zoo {

struct SickOptions {
  /// Whether a feature that `quiet` is given is NaN.
  TORCH_ARG(bool, nan) = false;
};

/// Maps normally distributed `[B, 64]` to `[B, 8]`. With the sum of what it returns as loss:
///
/// | module  |                                                              |
/// |---------|--------------------------------------------------------------|
/// | `dead`  | a ReLU that passes 1 of 200 features                         |
/// | `quiet` | a ReLU that passes 3 of 200 features, which are not too few  |
/// | `gate`  | a sigmoid that is closed                                     |
/// | `burst` | a layer whose gradient is a million times too large          |
/// | `fade`  | a layer whose gradient is lost                               |
struct SickImpl : torch::nn::Module {
  explicit SickImpl(const SickOptions& options = {});

  torch::Tensor forward(const torch::Tensor& x);

  SickOptions options;
  torch::nn::Linear stem{nullptr}, burst{nullptr}, fade{nullptr};
  torch::nn::ReLU dead{nullptr}, quiet{nullptr};
  torch::nn::Sigmoid gate{nullptr};

 private:
  torch::Tensor feature_;  // numbers of features
};
TORCH_MODULE(Sick);

}  // namespace zoo
