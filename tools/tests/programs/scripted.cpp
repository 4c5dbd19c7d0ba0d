// A program that runs a TorchScript file and knows nothing of torchtap: three times, or, with a number, loads
// it so often and runs each of these models three times.
#include <ATen/Parallel.h>
#include <torch/script.h>

#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  at::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  const int models = argc > 2 ? std::atoi(argv[2]) : 1;
  for (int n = 0; n < models; ++n) {
    torch::jit::Module model = torch::jit::load(argv[1]);
    model.eval();
    for (int i = 0; i < 3; ++i) {
      const at::Tensor images = torch::linspace(-1, i, 2 * 3 * 32 * 32).view({2, 3, 32, 32});
      std::cout << model.forward({images}).toTensor() << std::endl;
    }
  }
  return 4;
}
