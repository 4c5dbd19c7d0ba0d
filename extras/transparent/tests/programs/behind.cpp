// Linked in the wrong order, so that the program calls LibTorch's definitions. torchtap has to report that.
#include <torch/nn/modules/linear.h>

#include <iostream>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/transparent/transparent.hpp>

int main() {
  if (torchtap::transparent::check().empty()) return 1;
  try {
    torchtap::transparent::EveryModule hook(torchtap::hooks::Kind::forward_output,
                                            [](torch::nn::Module&, torchtap::hooks::Event&) {});
    return 1;
  } catch (const c10::ValueError& error) {
    const std::string message = error.what_without_backtrace();
    if (message.find("no call of a module is seen") == std::string::npos) return 1;
  }
  torch::nn::Linear linear(2, 2);
  try {
    auto handle = torchtap::hooks::attach(*linear, torchtap::hooks::Kind::forward_output,
                                          [](torchtap::hooks::Event&) {});
  } catch (const c10::ValueError& error) {
    const std::string message = error.what_without_backtrace();
    std::cout << message << '\n';
    return message.find("libtorch_cpu") != std::string::npos ? 0 : 1;
  }
  return 1;
}
