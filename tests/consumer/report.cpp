#include <ATen/Functions.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <torchtap/views/report/report.hpp>

int main() {
  torch::nn::Sequential model(torch::nn::Linear(3, 2));
  torchtap::views::report::Report costs(*model);
  {
    const auto recording = costs.record();
    model->forward(at::ones({4, 3}));
  }
  return costs.results().root.children.at(0).forward.work.macs == 4 * 3 * 2 ? 0 : 1;
}
