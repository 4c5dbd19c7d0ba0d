// Saves a recorder to a file in the middle of a run and continues from there, for jobs that are killed and
// restarted.

#include <torch/torch.h>

#include <iostream>
#include <vector>

#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/histogram.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/series.hpp>

namespace tap = torchtap;

tap::recorders::ForwardOutput make_recorder(const torch::nn::Sequential& model) {
  using namespace tap::reductions;
  tap::recorders::ForwardOutput recorder(
      Series(Moments(MomentsOptions().over({0})), Histogram(HistogramOptions(32).over_all(true))));
  recorder.attach(model, tap::selectors::types<torch::nn::Linear, torch::nn::Tanh>());
  return recorder;
}

int main() {
  torch::manual_seed(0);
  torch::NoGradGuard no_grad;
  torch::nn::Sequential model(torch::nn::Linear(20, 30), torch::nn::Tanh(), torch::nn::Linear(30, 5));
  std::vector<at::Tensor> batches;
  for (int i = 0; i < 10; ++i) batches.push_back(torch::randn({16, 20}) + i);

  {
    auto recorder = make_recorder(model);
    for (int i = 0; i < 4; ++i) model->forward(batches[i]);
    recorder.snapshot("resume.snapshot");  // written completely or not at all
  }                                        // the process may end here …
  auto resumed = make_recorder(model);
  resumed.restore("resume.snapshot");  // … and another one continue, with a recorder configured alike
  for (int i = 4; i < 10; ++i) model->forward(batches[i]);
  resumed.detach();

  auto uninterrupted = make_recorder(model);
  for (const auto& batch : batches) model->forward(batch);

  bool right = resumed.size() == 3 && resumed[0].samples() == 10;
  for (auto i : resumed.indices()) {
    std::cout << resumed[i].path() << " (" << resumed[i].type() << "): " << resumed[i].samples()
              << " samples";
    for (const auto& [name, tensor] : uninterrupted[i].results()) {
      right = right && resumed[i].tensor(name).equal(tensor);  // to the last bit
      std::cout << ", " << name;
    }
    std::cout << "\n";
  }
  std::cout << (right ? "Every result equals that of an uninterrupted run.\n" : "WRONG\n");
  return right ? 0 : 1;
}
