#pragma once

/// MobileNet (Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
/// Applications", 2017) over any kind of block, as later papers exchanged it. A class template; its holder is
/// written by hand, as TORCH_MODULE cannot declare templates.

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

namespace zoo {

/// A depthwise 3×3 convolution and a 1×1 convolution over the channels: `[N, in, H, W]` to
/// `[N, out, ⌈H / stride⌉, ⌈W / stride⌉]`.
struct SeparableImpl : torch::nn::Module {
  SeparableImpl(int64_t in, int64_t out, int64_t stride)
      : depthwise(register_module(
            "depthwise",
            torch::nn::Conv2d(
                torch::nn::Conv2dOptions(in, in, 3).stride(stride).padding(1).groups(in).bias(false)))),
        bn1(register_module("bn1", torch::nn::BatchNorm2d(in))),
        pointwise(register_module("pointwise",
                                  torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1).bias(false)))),
        bn2(register_module("bn2", torch::nn::BatchNorm2d(out))),
        relu(register_module("relu", torch::nn::ReLU())) {}

  torch::Tensor forward(torch::Tensor x) { return relu(bn2(pointwise(relu(bn1(depthwise(x)))))); }

  torch::nn::Conv2d depthwise;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Conv2d pointwise;
  torch::nn::BatchNorm2d bn2;
  torch::nn::ReLU relu;
};
TORCH_MODULE(Separable);

/// Maps images `[N, in_channels, H, W]` to scores `[N, num_classes]`. `Block` is a holder of modules
/// constructed from `(in, out, stride)`.
template <class Block>
struct MobileNetImpl : torch::nn::Module {
  MobileNetImpl(int64_t in_channels, int64_t num_classes, int64_t width, int64_t stages = 3) {
    stem = register_module(
        "stem", torch::nn::Conv2d(torch::nn::Conv2dOptions(in_channels, width, 3).padding(1).bias(false)));
    for (int64_t stage = 0; stage < stages; ++stage, width *= 2)
      blocks->push_back(Block(width, 2 * width, 2));
    register_module("blocks", blocks);
    head = register_module("head", torch::nn::Linear(width, num_classes));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = stem(x);
    for (const auto& block : *blocks) x = block->template as<Block>()->forward(x);
    return head(x.mean({2, 3}));
  }

  torch::nn::Conv2d stem{nullptr};
  torch::nn::ModuleList blocks;
  torch::nn::Linear head{nullptr};
};
template <class Block = Separable>
class MobileNet : public torch::nn::ModuleHolder<MobileNetImpl<Block>> {
 public:
  using torch::nn::ModuleHolder<MobileNetImpl<Block>>::ModuleHolder;
};

}  // namespace zoo
