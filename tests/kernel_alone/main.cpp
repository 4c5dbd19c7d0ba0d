// A program with the kernel alone: hooks and records C++ modules, and says which component knows TorchScript.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <iostream>
#include <string>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/sum.hpp>
#include <torchtap/storage/recording.hpp>

namespace tap = torchtap;

/// A function of the program: the kernel names no part, whatever it is called.
bool rows() {
  return true;
}

int main() {
  torch::nn::Sequential model(torch::nn::Linear(2, 2));
  tap::recorders::ForwardOutput recorder(tap::reductions::Sum{});
  recorder.attach(model);
  model->forward(at::ones({1, 2}));
  bool right = recorder.at("0").samples() == 1;
  const torch::jit::Module script("Script");
  const auto refuses = [&](const auto& call) {
    try {
      call();
    } catch (const c10::NotImplementedError& error) {
      const std::string said = error.msg();
      return said.find("-DTORCHTAP_COMPONENTS=torchscript") != std::string::npos;
    }
    return false;
  };
  right = right && refuses([&] {
            tap::hooks::attach(script, tap::hooks::Kind::forward, [](tap::hooks::Event&) {}).remove();
          });
  right = right && refuses([&] { tap::recorders::ForwardOutput().attach(script); });
  right = right && refuses([&] { tap::model::find(script, ""); });
  using namespace torchtap;
  right = right && rows();
  std::cout << (right ? "the kernel works alone\n" : "wrong\n");
  return right ? 0 : 1;
}
