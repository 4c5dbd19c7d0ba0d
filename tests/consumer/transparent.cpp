#include <torch/nn/functional.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/mean.hpp>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("fc", fc);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) { return norm(fc(x)); }
  torch::nn::Linear fc{4, 3};
  torch::nn::BatchNorm1d norm{3};
};
TORCH_MODULE(Net);

int main() {
  Net net;
  torchtap::recorders::ForwardOutput means(torchtap::reductions::Mean{});
  means.modules(net);
  const at::Tensor output = net(at::rand({5, 4}));
  return means.size() == 3 && means.at("").tensor().equal(output) &&
                 means.at("norm").tensor().equal(output) && means.at("fc").samples() == 1
             ? 0
             : 1;
}
