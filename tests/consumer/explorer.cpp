#include <ATen/Functions.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <torchtap/views/explorer/explorer.hpp>

int main() {
  torch::nn::Sequential model(torch::nn::Linear(3, 2));
  torchtap::views::explorer::Explorer explorer;
  explorer.attach(*model);
  const bool serves = explorer.serve().find("http://127.0.0.1:") == 0;
  model->forward(at::ones({4, 3})).sum().backward();
  return serves && explorer.errors().empty() ? 0 : 1;
}
