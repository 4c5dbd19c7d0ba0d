#include "unet.hpp"

#include <torch/nn/functional/upsampling.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/pooling.h>

#include <vector>

namespace F = torch::nn::functional;

namespace zoo {
namespace {

// No bias: the batch norm after it has one.
torch::nn::Conv2d conv3x3(int64_t in_channels, int64_t out_channels) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in_channels, out_channels, 3).padding(1).bias(false));
}

torch::nn::ReLU relu_in_place() {
  return torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true));
}

}  // namespace

DoubleConvImpl::DoubleConvImpl(int64_t in_channels, int64_t out_channels) {
  double_conv = register_module(
      "double_conv",
      torch::nn::Sequential(conv3x3(in_channels, out_channels), torch::nn::BatchNorm2d(out_channels),
                            relu_in_place(), conv3x3(out_channels, out_channels),
                            torch::nn::BatchNorm2d(out_channels), relu_in_place()));
}

torch::Tensor DoubleConvImpl::forward(torch::Tensor x) {
  return double_conv->forward(x);
}

DownImpl::DownImpl(int64_t in_channels, int64_t out_channels) {
  maxpool_conv = register_module(
      "maxpool_conv", torch::nn::Sequential(torch::nn::MaxPool2d(2), DoubleConv(in_channels, out_channels)));
}

torch::Tensor DownImpl::forward(torch::Tensor x) {
  return maxpool_conv->forward(x);
}

UpImpl::UpImpl(int64_t in_channels, int64_t out_channels) {
  up = register_module("up", torch::nn::ConvTranspose2d(
                                 torch::nn::ConvTranspose2dOptions(in_channels, out_channels, 2).stride(2)));
  conv = register_module("conv", DoubleConv(2 * out_channels, out_channels));
}

torch::Tensor UpImpl::forward(torch::Tensor x, const torch::Tensor& skip) {
  x = up(x);
  if (x.size(2) != skip.size(2) || x.size(3) != skip.size(3)) {  // pooling dropped an odd row or column
    x = F::interpolate(x, F::InterpolateFuncOptions()
                              .size(std::vector<int64_t>{skip.size(2), skip.size(3)})
                              .mode(torch::kNearest));
  }
  return conv->forward(torch::cat({skip, x}, /*dim=*/1));
}

UNetImpl::UNetImpl(const UNetOptions& options) {
  inc = register_module("inc", DoubleConv(options.in_channels(), options.width()));
  downs = register_module("downs", torch::nn::ModuleList());
  ups = register_module("ups", torch::nn::ModuleList());
  int64_t channels = options.width();
  for (int64_t level = 0; level < options.depth(); ++level, channels *= 2) {
    downs->push_back(Down(channels, 2 * channels));
  }
  for (int64_t level = 0; level < options.depth(); ++level, channels /= 2) {
    ups->push_back(Up(channels, channels / 2));
  }
  outc = register_module("outc", torch::nn::Conv2d(options.width(), options.out_channels(), 1));
}

torch::Tensor UNetImpl::forward(torch::Tensor x) {
  std::vector<torch::Tensor> skips;
  x = inc(x);
  for (const auto& down : *downs) {
    skips.push_back(x);
    x = down->as<Down>()->forward(x);
  }
  for (const auto& up : *ups) {
    x = up->as<Up>()->forward(x, skips.back());
    skips.pop_back();
  }
  return outc(x);
}

}  // namespace zoo
