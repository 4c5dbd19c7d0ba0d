// A plug-in of `ends`, which that opens and closes.
#include <torch/torch.h>

#include <memory>

namespace nn = torch::nn;

namespace {

struct Plugged : nn::Module {
  nn::Linear first{register_module("first", nn::Linear(4, 4))};
  nn::Linear last{register_module("last", nn::Linear(4, 2))};
  at::Tensor forward(const at::Tensor& x) { return last(torch::relu(first(x))); }
};

}  // namespace

/// Makes a model, runs it, and destroys it.
extern "C" double run_plug_in(double x) {
  const auto model = std::make_shared<Plugged>();
  model->eval();
  const torch::NoGradGuard guard;
  for (const at::Tensor& parameter : model->parameters()) parameter.fill_(0.5);
  return model->forward(torch::full({8, 4}, x)).sum().item<double>();
}
