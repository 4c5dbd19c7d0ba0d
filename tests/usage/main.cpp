// The program of docs/concepts/recorders.md and more of its kind, whole; check.py looks at what it wrote.

#include <torch/torch.h>

#include <torchtap/torchtap.hpp>
namespace tap = torchtap;

int main() {
  torch::nn::Sequential model(torch::nn::Linear(784, 100), torch::nn::ReLU(), torch::nn::Linear(100, 50),
                              torch::nn::ReLU(), torch::nn::Linear(50, 10));

  // Sums, sample after sample, what enters children 2 and 3.
  tap::recorders::ForwardPre inputs(tap::reductions::Sum{});
  inputs.children(*model, tap::selectors::indices({2, 3}));

  // Any callable folds, any nullary callable decides.
  bool interesting = true;
  tap::recorders::ForwardOutput peaks(
      tap::recorders::RecorderOptions()
          .condition([&] { return interesting; })
          .reduction([](const at::Tensor& a, const at::Tensor& b) { return at::max(a, b); }));
  peaks.modules(*model, tap::selectors::types<torch::nn::Linear, torch::nn::ReLU>());

  // Gradients that leave every Linear but the first; every sample is kept.
  tap::recorders::BackwardOutput gradients;
  gradients.modules(*model, tap::selectors::types<torch::nn::Linear>() && !tap::selectors::names("0"));

  for (int step = 0; step < 1000; ++step) model->forward(torch::randn({1, 784})).sum().backward();

  inputs.size();           // 2 subrecorders
  inputs[0].name();        // "2", the module's path
  inputs[0].type();        // "Linear"
  inputs[0].samples();     // 1000 recorded calls
  inputs[0].tensor();      // [1, 100], the running sum
  peaks.size();            // 5
  gradients[1].tensors();  // std::vector<at::Tensor>, 1000 of [1, 10]

  inputs.apply([](const at::Tensor& sum) { return sum * 2; });  // stored back
  inputs.apply_sample(
      [](const at::Tensor& sum, int64_t samples) { return sum / (2 * samples); });  // now the mean
  inputs.save("analysis",
              tap::storage::SaveOptions().mkdir(true));  // analysis/0.pt analysis/1.pt analysis/manifest.json
  auto recording = tap::storage::load("analysis");
  recording.at("2").tensor();  // by name or by index

  // What check.py compares with.
  peaks.save("peaks", tap::storage::SaveOptions().mkdir(true));
  gradients.save("gradients", tap::storage::SaveOptions().mkdir(true));
  tap::storage::save_value("weights.pt", tap::core::Value(model->parameters()));
}
