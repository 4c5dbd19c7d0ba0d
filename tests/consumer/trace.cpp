#include <ATen/Functions.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <torchtap/views/trace/trace.hpp>

int main() {
  torch::nn::Sequential model(torch::nn::Linear(3, 2));
  const auto history = torchtap::views::trace::log_forward_pass(*model, {at::ones({4, 3})});
  return history["linear_1"].shape() == std::vector<std::int64_t>{4, 2} ? 0 : 1;
}
