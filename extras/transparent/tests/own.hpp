#pragma once

// Modules as users write them, unaware of torchtap. Included where they are hooked and compiled at every
// level of optimisation.
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <vector>

namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width = 4, double scale = 2.0)
      : fc(register_module("fc", torch::nn::Linear(width, width))), scale(scale) {}
  at::Tensor forward(const at::Tensor& x) { return torch::relu(fc(x)) * scale; }
  torch::nn::Linear fc;
  double scale;
};
TORCH_MODULE(Block);

/// Has default arguments, returns a tuple, can be cloned.
struct GateImpl : torch::nn::Cloneable<GateImpl> {
  explicit GateImpl(std::int64_t width) : width(width) { GateImpl::reset(); }
  void reset() override { gate = register_module("gate", torch::nn::Linear(width, width)); }
  std::tuple<at::Tensor, at::Tensor> forward(at::Tensor x, at::Tensor bias = {}, bool twice = false) {
    auto y = torch::sigmoid(gate->forward(x));
    if (bias.defined()) y = y + bias;
    return {twice ? y * 2 : y, x};
  }
  std::int64_t width;
  torch::nn::Linear gate{nullptr};
};
TORCH_MODULE(Gate);

/// A user-defined extension of a LibTorch module.
struct ScaledImpl : torch::nn::LinearImpl {
  ScaledImpl() : LinearImpl(4, 4) {}
  at::Tensor forward(const at::Tensor& x) { return LinearImpl::forward(x) * 3; }
};
TORCH_MODULE(Scaled);
struct RenamedImpl : torch::nn::LinearImpl {
  RenamedImpl() : LinearImpl(4, 4) {}
};
TORCH_MODULE(Renamed);

/// Keeps LibTorch's holder.
struct TwoWaysImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x + 1; }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return x + y; }
};
TORCH_MODULE(TwoWays);
struct SealedImpl final : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x + 2; }
};
TORCH_MODULE(Sealed);
struct ConfigImpl : torch::nn::Module {
  int depth = 3;
};
TORCH_MODULE(Config);
struct NodeImpl;
TORCH_MODULE(Node);
struct NodeImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return next.is_empty() ? x : next->forward(x) + 1; }
  Node next{nullptr};
};

/// Not declared with TORCH_MODULE, as in LibTorch's tutorials.
struct Net : torch::nn::Module {
  Net() {
    for (int i = 0; i < 2; ++i) blocks->push_back(Block(4, 1.0 + i));
    blocks->push_back(std::make_shared<BlockImpl>(4, 5.0));
    tail->push_back(Block(4));
    tail->push_back(torch::nn::BatchNorm1d(4));
    tail->push_back(torch::nn::Linear(4, 2));
    register_module("blocks", blocks);
    register_module("gate", gate);
    register_module("scaled", scaled);
    register_module("renamed", renamed);
    register_module("norm", norm);
    register_module("tail", tail);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    at::Tensor passed;
    std::tie(x, passed) = gate(x);
    x = norm(x + std::get<0>(gate->forward(x, passed, true)));
    x = renamed(scaled(x));
    return tail->forward(x);
  }
  torch::nn::ModuleList blocks;
  Gate gate{4};
  Scaled scaled;
  Renamed renamed;
  torch::nn::BatchNorm1d norm{4};
  torch::nn::Sequential tail;
};

}  // namespace
