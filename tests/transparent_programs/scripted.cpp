// A program that runs a TorchScript file and knows nothing of torchtap.
#include <ATen/Parallel.h>
#include <torch/script.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  at::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  torch::jit::Module model = torch::jit::load(argv[1]);
  model.eval();
  for (int i = 0; i < 3; ++i) {
    const at::Tensor images = torch::linspace(-1, i, 2 * 3 * 32 * 32).view({2, 3, 32, 32});
    std::cout << model.forward({images}).toTensor() << std::endl;
  }
  return 4;
}
