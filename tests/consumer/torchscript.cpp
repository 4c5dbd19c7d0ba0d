// A program with a TorchScript model, which says so in its CMakeLists.txt.
#include <torch/script.h>

#include <iostream>

#include <torchtap/torchtap.hpp>

int main() {
  torch::jit::Module model("Model");
  model.define("def forward(self, x):\n  return x + x\n");
  int calls = 0;
  const auto handle = torchtap::hooks::attach(model, torchtap::hooks::Kind::forward_output,
                                              [&](torchtap::hooks::Event&) { ++calls; });
  model.forward({torch::ones({2})});
  std::cout << "torchscript: " << calls << " call\n";
  return calls == 1 ? 0 : 1;
}
