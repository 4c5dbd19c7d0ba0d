#pragma once

#include <ATen/autocast_mode.h>
#include <boost/test/unit_test.hpp>
#include <torch/script.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <string>
#include <vector>

#include <torchtap/storage/file.hpp>
#include <torchtap/views/trace/trace.hpp>

#include "tests/support.hpp"

/// Models and comparisons of the trace tests.
namespace support {

namespace nn = torch::nn;
namespace trace = torchtap::views::trace;

/// As torchvision has it.
struct AlexNetImpl : nn::Module {
  nn::Sequential features, classifier;
  nn::AdaptiveAvgPool2d avgpool{nullptr};

  AlexNetImpl() {
    const auto conv = [](int in, int out, int kernel, int stride, int padding) {
      return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding));
    };
    const auto relu = [] { return nn::ReLU(nn::ReLUOptions(true)); };
    const auto pool = [] { return nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2)); };
    features = register_module(
        "features", nn::Sequential(conv(3, 64, 11, 4, 2), relu(), pool(), conv(64, 192, 5, 1, 2), relu(),
                                   pool(), conv(192, 384, 3, 1, 1), relu(), conv(384, 256, 3, 1, 1), relu(),
                                   conv(256, 256, 3, 1, 1), relu(), pool()));
    avgpool = register_module("avgpool", nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({6, 6})));
    classifier = register_module(
        "classifier", nn::Sequential(nn::Dropout(0.5), nn::Linear(256 * 36, 4096), relu(), nn::Dropout(0.5),
                                     nn::Linear(4096, 4096), relu(), nn::Linear(4096, 1000)));
  }
  at::Tensor forward(at::Tensor x) {
    x = avgpool(features->forward(x));
    return classifier->forward(torch::flatten(x, 1));
  }
};
TORCH_MODULE(AlexNet);

struct BlockImpl : nn::Module {
  nn::Conv2d conv1{nullptr}, conv2{nullptr}, down{nullptr};
  nn::BatchNorm2d norm1{nullptr}, norm2{nullptr}, norm{nullptr};

  BlockImpl(int in, int out, int stride) {
    const auto conv = [](int a, int b, int kernel, int s) {
      return nn::Conv2d(nn::Conv2dOptions(a, b, kernel).stride(s).padding(kernel / 2).bias(false));
    };
    conv1 = register_module("conv1", conv(in, out, 3, stride));
    norm1 = register_module("norm1", nn::BatchNorm2d(out));
    conv2 = register_module("conv2", conv(out, out, 3, 1));
    norm2 = register_module("norm2", nn::BatchNorm2d(out));
    if (stride == 1 && in == out) return;
    down = register_module("down", conv(in, out, 1, stride));
    norm = register_module("norm", nn::BatchNorm2d(out));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = norm1(conv1(x));
    torch::relu_(y);
    y = norm2(conv2(y));
    y += down.is_empty() ? x : norm(down(x));
    return torch::relu_(y);
  }
};
TORCH_MODULE(Block);

/// A ResNet with two blocks at each of three widths.
struct ResNetImpl : nn::Module {
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};
  nn::Sequential blocks;
  nn::Linear head{nullptr};

  ResNetImpl() {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 7).stride(2).padding(3).bias(false)));
    norm = register_module("norm", nn::BatchNorm2d(8));
    int in = 8;
    for (int stage = 0; stage < 3; ++stage) {
      for (int k = 0; k < 2; ++k) {
        blocks->push_back(Block(in, 8 << stage, stage > 0 && k == 0 ? 2 : 1));
        in = 8 << stage;
      }
    }
    register_module("blocks", blocks);
    head = register_module("head", nn::Linear(in, 10));
  }
  at::Tensor forward(at::Tensor x) {
    x = norm(conv(x));
    torch::relu_(x);
    x = blocks->forward(torch::max_pool2d(x, 3, 2, 1));
    return head(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }
};
TORCH_MODULE(ResNet);

inline void set_autocast(bool enabled) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  at::autocast::set_autocast_enabled(at::kCPU, enabled);
#else
  at::autocast::set_cpu_enabled(enabled);
#endif
  if (!enabled) at::autocast::clear_cache();
}

/// While it lives, operations on the CPU run in a lower precision where LibTorch thinks that it suffices.
class Autocast {
 public:
  Autocast() { set_autocast(true); }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() { set_autocast(false); }
};

inline std::vector<std::string> labels(const std::vector<trace::Node>& nodes) {
  std::vector<std::string> labels;
  for (const trace::Node& node : nodes) labels.push_back(node.label());
  return labels;
}

/// Runs code without a model, keeping everything.
template <class Function>
trace::History logged(Function&& function,
                      trace::TraceOptions options = trace::TraceOptions().save(trace::Save::all)) {
  trace::Tracer tracer(std::move(options));
  tracer.run(function);
  return tracer.finish();
}

template <class T>
std::string text(const T& printed) {
  std::ostringstream out;
  out << printed;
  return out.str();
}

}  // namespace support
