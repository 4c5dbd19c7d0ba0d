// The smallest program: running sums of the inputs of two modules of a plain model, saved for Python.
//
//     torch.load("running_sum.recording/0.pt", weights_only=True) / samples    # the mean input of module 2

#include <torch/torch.h>

#include <iostream>

#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/sum.hpp>

namespace tap = torchtap;

int main() {
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(784, 100), torch::nn::ReLU(), torch::nn::Linear(100, 50),
                              torch::nn::ReLU(), torch::nn::Linear(50, 10));

  // Modules "2" and "3" of the model: the second Linear and the ReLU after it.
  tap::recorders::ForwardPre inputs(tap::reductions::Sum{});
  inputs.attach(model, tap::selectors::names("2", "3"));

  // The same sum by hand, for comparison.
  torch::NoGradGuard no_grad;
  auto first = model->ptr<torch::nn::LinearImpl>(0);
  at::Tensor by_hand = torch::zeros({1, 100});
  for (int step = 0; step < 1000; ++step) {
    const at::Tensor image = torch::randn({1, 784});
    model->forward(image);
    by_hand += torch::relu(first->forward(image));
  }

  for (const auto& module : inputs) {
    std::cout << "module " << module.path() << " (" << module.type() << "): " << module.samples()
              << " samples, sum of shape " << module.tensor().sizes() << "\n";
  }

  // One .pt file per module, and a manifest that maps files to modules.
  inputs.save("running_sum.recording", tap::storage::SaveOptions().mkdir(true).overwrite(true));
  const auto recording = tap::storage::load("running_sum.recording");

  const bool right = inputs[0].samples() == 1000 && inputs[0].tensor().allclose(by_hand, 1e-4, 1e-4) &&
                     recording.at("2").tensor().equal(inputs[0].tensor());
  std::cout << (right ? "The sums in memory and on disk equal the one computed by hand.\n" : "WRONG\n");
  return right ? 0 : 1;
}
