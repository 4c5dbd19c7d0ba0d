// Gradients at a skip connection, y = x + f(x). BackwardInput of f counts only the gradient that flows back
// through f; x itself receives that plus the gradient that bypasses f.

#include <torch/torch.h>

#include <iostream>

#include <torchtap/hooks/nn.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace tap = torchtap;

struct SkipImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return x + f(x); }

  tap::nn::Linear f = register_module("f", tap::nn::Linear(4, 4));
};
TORCHTAP_MODULE(Skip);

int main() {
  torch::manual_seed(0);
  Skip model;

  tap::recorders::BackwardInput into;  // the gradient with respect to f's input; every sample is kept
  into.attach(model, tap::selectors::names("f"));
  tap::recorders::BackwardOutput outof;  // the gradient with respect to f's output
  outof.attach(model, tap::selectors::names("f"));
  tap::recorders::BackwardOutput lengths(  // only the norm of the same gradient: 4 bytes per sample
      tap::recorders::RecorderOptions().transform(
          [](const at::Tensor& gradient) { return gradient.norm(); }));
  lengths.attach(model, tap::selectors::names("f"));

  const at::Tensor x = torch::randn({2, 4}, torch::requires_grad());
  model->forward(x).pow(2).sum().backward();

  const at::Tensor through_f = into.at("f").tensors().at(0);
  const at::Tensor arriving = outof.at("f").tensors().at(0);
  std::cout << "gradient at y:\n" << arriving << "\n";
  std::cout << "its part that flows back through f:\n" << through_f << "\n";
  std::cout << "gradient of x, the sum of both paths:\n" << x.grad() << "\n";

  const bool right = through_f.allclose(arriving.mm(model->f->weight.detach())) &&
                     x.grad().allclose(arriving + through_f) &&
                     lengths[0].tensors().at(0).equal(arriving.norm());
  std::cout << (right ? "The two paths add up.\n" : "WRONG\n");
  return right ? 0 : 1;
}
