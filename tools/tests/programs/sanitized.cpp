// A program with AddressSanitizer that knows nothing of torchtap.
#include <torch/nn/modules/linear.h>

#include <iostream>
#include <string>

int main(int argc, char** argv) {
  const torch::NoGradGuard no_grad;
  torch::nn::Linear layer(2, 1);
  layer->weight.fill_(1);
  layer->bias.fill_(0);
  for (int i = 0; i < 3; ++i) std::cout << layer(torch::full({1, 2}, double(i))).item<float>() << std::endl;
  // One beyond the end: found if the sanitizer works.
  if (argc > 1 && std::string(argv[1]) == "wrong") return (new char[8])[argc + 6];
  return 6;
}
