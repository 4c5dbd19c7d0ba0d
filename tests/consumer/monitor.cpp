#include <ATen/Functions.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include <torchtap/views/monitor/monitor.hpp>

int main() {
  torch::nn::Sequential model(torch::nn::Linear(3, 2));
  torchtap::views::monitor::Monitor watch(model, "");
  model->forward(at::ones({4, 3}));
  watch.flush();
  const bool quiet = watch.alarms().empty();
  model->forward(at::full({4, 3}, NAN));
  watch.flush();
  return quiet && watch.alarms().at(0).finding.rule == "nonfinite" ? 0 : 1;
}
