#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/torchtap.hpp>

int main() {
  torch::nn::Sequential model(torch::nn::Linear(4, 3), torch::nn::Linear(3, 2));
  torchtap::recorders::ForwardOutput means(torchtap::reductions::Mean{});
  means.modules(*model);
  const at::Tensor output = model->forward(at::ones({5, 4}));
  return means.size() == 3 && means.at("1").tensor().equal(output) ? 0 : 1;
}
