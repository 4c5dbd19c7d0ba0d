#pragma once

/// A small detector like those of torchvision: features at several scales, a neck that combines them, and
/// results by name.

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zoo {

/// Combines features `[B, width, H, W]`, each half as large as the one before, into one of the first one's
/// size.
struct NeckImpl : torch::nn::Module {
  explicit NeckImpl(int64_t width);

  torch::Tensor forward(torch::TensorList features);

  torch::nn::Conv2d conv{nullptr};
};
TORCH_MODULE(Neck);

/// Maps images `[B, 3, H, W]` to "boxes" `[B, 4, H/2, W/2]` and "scores" `[B, classes, H/2, W/2]`.
struct DetectorImpl : torch::nn::Module {
  explicit DetectorImpl(int64_t classes, int64_t width = 8);

  std::map<std::string, torch::Tensor> forward(torch::Tensor images);

  torch::nn::Conv2d stem{nullptr}, down{nullptr}, scores{nullptr}, boxes{nullptr};
  Neck neck{nullptr};
};
TORCH_MODULE(Detector);

}  // namespace zoo
