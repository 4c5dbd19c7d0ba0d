#include <ATen/Functions.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <torchtap/views/compare/compare.hpp>

namespace compare = torchtap::views::compare;

int main() {
  torch::nn::Sequential model(torch::nn::Linear(8, 8),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
  const at::Tensor x = at::randn({4, 8});
  for (const char* file : {"a.prints", "b.prints"}) {
    compare::Fingerprints prints(file);
    prints.attach(model);
    model->forward(x);
    prints.close();
    model->ptr<torch::nn::LayerNormImpl>(1)->options.eps(1e-2);
  }
  const auto a = compare::Run::read("a.prints"), b = compare::Run::read("b.prints");
  const auto verdict = compare::judge(a, b, compare::pair_up(a, b));
  const bool same = compare::judge(a, a, compare::pair_up(a, a)).agree();
  return same && !verdict.agree() && verdict.suspects.front().path == "1" ? 0 : 1;
}
