#include "detector.hpp"

#include <torch/nn/functional/upsampling.h>

namespace F = torch::nn::functional;

namespace zoo {
namespace {

torch::nn::Conv2d halve(int64_t in_channels, int64_t out_channels) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in_channels, out_channels, 3).stride(2).padding(1));
}

}  // namespace

NeckImpl::NeckImpl(int64_t width) {
  conv = register_module("conv", torch::nn::Conv2d(width, width, 1));
}

torch::Tensor NeckImpl::forward(torch::TensorList features) {
  torch::Tensor sum = conv(features[0]);
  const std::vector<int64_t> size{sum.size(2), sum.size(3)};
  for (const torch::Tensor& feature : features.slice(1)) {
    sum = sum + F::interpolate(feature, F::InterpolateFuncOptions().size(size).mode(torch::kNearest));
  }
  return sum;
}

DetectorImpl::DetectorImpl(int64_t classes, int64_t width) {
  stem = register_module("stem", halve(3, width));
  down = register_module("down", halve(width, width));
  neck = register_module("neck", Neck(width));
  scores = register_module("scores", torch::nn::Conv2d(width, classes, 1));
  boxes = register_module("boxes", torch::nn::Conv2d(width, 4, 1));
}

std::map<std::string, torch::Tensor> DetectorImpl::forward(torch::Tensor images) {
  const torch::Tensor fine = torch::relu(stem(images));
  const std::vector<torch::Tensor> features{fine, torch::relu(down(fine))};
  const torch::Tensor all = neck(features);
  return {{"scores", scores(all)}, {"boxes", boxes(all)}};
}

}  // namespace zoo
