// A hook may replace what a module returns. Here one channel at a time is zeroed, and the loss tells how much
// the model needs it.

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <string>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/walk.hpp>

namespace tap = torchtap;

int main() {
  torch::manual_seed(0);
  constexpr int64_t kChannels = 4;
  torch::nn::Sequential model({{"conv", torch::nn::Conv2d(1, kChannels, 3)},
                               {"relu", torch::nn::ReLU()},
                               {"pool", torch::nn::AdaptiveAvgPool2d(1)},
                               {"flatten", torch::nn::Flatten()},
                               {"head", torch::nn::Linear(kChannels, 2)}});

  // Stripes to tell apart: lying ones from standing ones.
  const at::Tensor stripes = torch::arange(12).remainder(2).to(torch::kFloat).expand({64, 1, 12, 12});
  const at::Tensor images =
      torch::cat({stripes, stripes.transpose(2, 3)}) + 1.5 * torch::randn({128, 1, 12, 12});
  const at::Tensor labels = torch::arange(2).repeat_interleave(64);
  const auto loss = [&] { return torch::cross_entropy_loss(model->forward(images), labels); };
  torch::optim::Adam optimizer(model->parameters(), 0.02);
  for (int step = 0; step < 150; ++step) {
    optimizer.zero_grad();
    loss().backward();
    optimizer.step();
  }

  torch::NoGradGuard no_grad;
  const double intact = loss().item<double>();
  std::cout << std::fixed << std::setprecision(4) << "intact           loss " << intact << "\n";

  const tap::model::ModuleRef relu = tap::model::find(*model, "relu");
  auto& head = *model->ptr<torch::nn::LinearImpl>(4);
  bool right = intact < 0.2;
  double worst = intact;
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    double ablated = 0;
    {
      const auto zero = [channel](tap::hooks::Event& event) {
        at::Tensor changed = event.outputs()[0].clone();  // others may still hold what the module returned
        changed.select(1, channel).zero_();
        event.outputs()[0] = changed;
      };
      const auto handle = tap::hooks::attach(relu, tap::hooks::Kind::forward_output, zero);
      ablated = loss().item<double>();
    }  // the handle goes, and the hook with it
    std::cout << "without channel " << channel << " loss " << ablated << "  "
              << std::string(static_cast<std::size_t>(std::min(ablated * 20, 60.0)), '#') << "\n";

    // The same without a hook: the head's weights for this channel set to zero.
    const at::Tensor weight = head.weight.clone();
    head.weight.select(1, channel).zero_();
    right = right && std::abs(loss().item<double>() - ablated) < 1e-5;
    head.weight.copy_(weight);
    worst = std::max(worst, ablated);
  }
  right = right && worst > 2 * intact && loss().item<double>() == intact;
  std::cout << (right ? "Each loss is that of a head without the channel; afterwards the model is intact.\n"
                      : "WRONG\n");
  return right ? 0 : 1;
}
