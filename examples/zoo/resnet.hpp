#pragma once

/// ResNet-18 (He et al., "Deep Residual Learning for Image Recognition", 2015) with torchvision's names and
/// initialisation, so that parameters can be copied by name.

#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

namespace zoo {

/// Two 3×3 convolutions and a shortcut: `[N, inplanes, H, W]` to `[N, planes, ⌈H / stride⌉, ⌈W / stride⌉]`.
/// The shortcut is the input itself if the shapes agree, otherwise a 1×1 convolution (`downsample`).
struct BasicBlockImpl : torch::nn::Module {
  BasicBlockImpl(int64_t inplanes, int64_t planes, int64_t stride = 1);

  torch::Tensor forward(torch::Tensor x);

  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  torch::nn::ReLU relu{nullptr};
  torch::nn::Sequential downsample{nullptr};  ///< null if the shortcut is the input
};
TORCH_MODULE(BasicBlock);

struct ResNet18Options {
  /// Number of classes.
  TORCH_ARG(int64_t, num_classes) = 1000;
  /// Channels of the images.
  TORCH_ARG(int64_t, in_channels) = 3;
  /// Channels of the first stage; each further stage doubles them.
  TORCH_ARG(int64_t, width) = 64;
};

/// Maps images `[N, in_channels, H, W]` to scores `[N, num_classes]`. Accepts any H and W: the last features,
/// 1/32 of the image's height and width, are averaged.
struct ResNet18Impl : torch::nn::Module {
  explicit ResNet18Impl(const ResNet18Options& options = {});

  torch::Tensor forward(torch::Tensor x);

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};
  torch::nn::ReLU relu{nullptr};
  torch::nn::MaxPool2d maxpool{nullptr};
  torch::nn::Sequential layer1{nullptr}, layer2{nullptr}, layer3{nullptr}, layer4{nullptr};
  torch::nn::AdaptiveAvgPool2d avgpool{nullptr};
  torch::nn::Linear fc{nullptr};

 private:
  void initialize();
};
TORCH_MODULE(ResNet18);

}  // namespace zoo
