// Takes features from the middle of a deep model without paying for the rest: the forward stops once
// everything to be recorded is there.

#include <torch/torch.h>

#include <chrono>
#include <iostream>

#include <torchtap/recorders/recorder.hpp>

namespace tap = torchtap;

int main() {
  torch::manual_seed(0);
  torch::NoGradGuard no_grad;
  torch::nn::Sequential model;
  for (int layer = 0; layer < 200; ++layer) model->push_back(torch::nn::Linear(256, 256));
  const at::Tensor x = torch::randn({64, 256});
  const auto milliseconds = [](auto&& run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };

  tap::recorders::ForwardOutput features;  // of two layers, listed in any order
  features.attach(model, tap::selectors::names("7", "3"));
  tap::recorders::ForwardPre later;  // checks that the other layers do not run
  later.attach(model, tap::selectors::names("8", "199"));

  const double whole = milliseconds([&] { model->forward(x); });
  const auto expected = features.at("7").tensors().at(0);
  features.reset();
  later.reset();

  bool stopped = false;
  const double part = milliseconds([&] { stopped = features.until_recorded([&] { model->forward(x); }); });
  std::cout << "all 200 layers: " << whole << " ms; until layer 7 was recorded: " << part << " ms\n";

  const bool right = stopped && features.samples() == 2 && later.samples() == 0 &&
                     features.at("7").tensors().at(0).equal(expected);
  std::cout << (right ? "The features are the same, and the layers after them never ran.\n" : "WRONG\n");
  return right ? 0 : 1;
}
