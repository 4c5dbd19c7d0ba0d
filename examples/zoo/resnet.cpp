#include "resnet.hpp"

#include <torch/nn/init.h>

namespace zoo {
namespace {

// No bias: the batch norm after each convolution has one.
torch::nn::Conv2dOptions conv3x3(int64_t inplanes, int64_t planes, int64_t stride) {
  return torch::nn::Conv2dOptions(inplanes, planes, 3).stride(stride).padding(1).bias(false);
}

torch::nn::Conv2dOptions conv1x1(int64_t inplanes, int64_t planes, int64_t stride) {
  return torch::nn::Conv2dOptions(inplanes, planes, 1).stride(stride).bias(false);
}

torch::nn::ReLU relu_inplace() {
  return torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true));
}

torch::nn::Sequential make_layer(int64_t inplanes, int64_t planes, int64_t stride) {
  return torch::nn::Sequential(BasicBlock(inplanes, planes, stride), BasicBlock(planes, planes));
}

}  // namespace

BasicBlockImpl::BasicBlockImpl(int64_t inplanes, int64_t planes, int64_t stride) {
  conv1 = register_module("conv1", torch::nn::Conv2d(conv3x3(inplanes, planes, stride)));
  bn1 = register_module("bn1", torch::nn::BatchNorm2d(planes));
  relu = register_module("relu", relu_inplace());
  conv2 = register_module("conv2", torch::nn::Conv2d(conv3x3(planes, planes, 1)));
  bn2 = register_module("bn2", torch::nn::BatchNorm2d(planes));
  if (stride != 1 || inplanes != planes) {
    downsample = register_module("downsample",
                                 torch::nn::Sequential(torch::nn::Conv2d(conv1x1(inplanes, planes, stride)),
                                                       torch::nn::BatchNorm2d(planes)));
  }
}

torch::Tensor BasicBlockImpl::forward(torch::Tensor x) {
  torch::Tensor out = relu(bn1(conv1(x)));
  out = bn2(conv2(out));
  out += downsample.is_empty() ? x : downsample->forward(x);
  return relu(out);
}

ResNet18Impl::ResNet18Impl(const ResNet18Options& options) {
  const int64_t width = options.width();
  conv1 = register_module(
      "conv1",
      torch::nn::Conv2d(
          torch::nn::Conv2dOptions(options.in_channels(), width, 7).stride(2).padding(3).bias(false)));
  bn1 = register_module("bn1", torch::nn::BatchNorm2d(width));
  relu = register_module("relu", relu_inplace());
  maxpool =
      register_module("maxpool", torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
  layer1 = register_module("layer1", make_layer(width, width, 1));
  layer2 = register_module("layer2", make_layer(width, 2 * width, 2));
  layer3 = register_module("layer3", make_layer(2 * width, 4 * width, 2));
  layer4 = register_module("layer4", make_layer(4 * width, 8 * width, 2));
  avgpool = register_module("avgpool", torch::nn::AdaptiveAvgPool2d(1));
  fc = register_module("fc", torch::nn::Linear(8 * width, options.num_classes()));
  initialize();
}

void ResNet18Impl::initialize() {
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(conv->weight, /*a=*/0, torch::kFanOut, torch::kReLU);
    } else if (auto* bn = module->as<torch::nn::BatchNorm2d>()) {
      torch::nn::init::ones_(bn->weight);
      torch::nn::init::zeros_(bn->bias);
    }
  }
}

torch::Tensor ResNet18Impl::forward(torch::Tensor x) {
  x = maxpool(relu(bn1(conv1(x))));
  x = layer1->forward(x);
  x = layer2->forward(x);
  x = layer3->forward(x);
  x = layer4->forward(x);
  x = torch::flatten(avgpool->forward(x), /*start_dim=*/1);
  return fc->forward(x);
}

}  // namespace zoo
