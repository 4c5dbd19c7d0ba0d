// Hooks your own modules: replace TORCH_MODULE by TORCHTAP_MODULE, and use torchtap::nn names for built-in
// modules that your forward calls directly. Nothing else changes.

#include <torch/torch.h>

#include <iostream>

#include <torchtap/hooks/nn.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/moments.hpp>

namespace tap = torchtap;

struct ResidualBlockImpl : torch::nn::Module {
  explicit ResidualBlockImpl(int64_t width)
      : widen(register_module("widen", tap::nn::Linear(width, 4 * width))),
        narrow(register_module("narrow", tap::nn::Linear(4 * width, width))) {}

  at::Tensor forward(at::Tensor x) { return x + narrow(torch::relu(widen(x))); }

  tap::nn::Linear widen, narrow;
};
TORCHTAP_MODULE(ResidualBlock);

struct NetImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) {
    for (int repeat = 0; repeat < 3; ++repeat) x = block(x);  // the same block, three times
    return head(x);
  }

  ResidualBlock block = register_module("block", ResidualBlock(16));
  tap::nn::Linear head = register_module("head", tap::nn::Linear(16, 2));
};
TORCHTAP_MODULE(Net);

int main() {
  torch::manual_seed(0);
  Net net;

  // Selectors match types and paths; without one, everything with a forward is recorded, including Net.
  tap::recorders::ForwardOutput all(
      tap::reductions::Moments(tap::reductions::MomentsOptions().over_all(true)));
  all.attach(net);
  // Only the third pass through the block: conditions see the index of a call within a forward.
  tap::recorders::ForwardOutput last(tap::recorders::RecorderOptions().condition(
      [](const tap::recorders::Sample& sample) { return sample.call_index() == 2; }));
  last.attach(net, tap::selectors::types<ResidualBlock>());

  const at::Tensor x = torch::randn({8, 16});
  const at::Tensor y = net->forward(x);

  for (const auto& module : all) {
    std::cout << (module.path().empty() ? "(root)" : module.path()) << " (" << module.type()
              << "): " << module.samples() << " samples, variance "
              << module.tensor("variance").item<double>() << "\n";
  }

  const at::Tensor features = last.at("block").tensors().at(0);
  const bool right = all.size() == 5 && all.at("").samples() == 1 && all.at("block").samples() == 3 &&
                     all.at("block.widen").samples() == 3 && last[0].samples() == 1 &&
                     torch::linear(features, net->head->weight, net->head->bias).allclose(y);
  std::cout << (right ? "The head computed the result from the output of the third pass.\n" : "WRONG\n");
  return right ? 0 : 1;
}
