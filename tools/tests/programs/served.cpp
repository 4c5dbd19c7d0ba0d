// A server that knows nothing of torchtap: runs a model on requests, and is told what these are and how it
// ends.
//
//     served MODEL PHASE…     MODEL: "net", or a TorchScript file, or two models: "pair", or "reversed pair"
//
// Phases: "clean:N" and "nan:N" are N requests; "noise" and "idle" go on until a file "stop" exists here;
// "fork:PHASE" is done by a forked child; "exit", "segv", "kill", "abort", "throw" and "term" end the
// program.
#include <signal.h>
#include <sys/wait.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/script.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

namespace nn = torch::nn;

namespace {

struct NetImpl : nn::Module {
  NetImpl()
      : first(register_module("first", nn::Conv2d(3, 8, 3))),
        second(register_module("second", nn::Conv2d(8, 8, 3))),
        head(register_module("head", nn::Linear(8, 4))) {}
  at::Tensor forward(const at::Tensor& x) { return head(second(first(x).relu()).relu().mean({2, 3})); }
  nn::Conv2d first, second;
  nn::Linear head;
};
TORCH_MODULE(Net);

using Model = std::function<at::Tensor(const at::Tensor&)>;

/// The model lives until the end of the program or, as here, before `main` returns.
Model open_model(const std::string& name) {
  if (name == "net") {
    torch::manual_seed(0);
    Net net;
    net->eval();
    return [net](const at::Tensor& x) mutable { return net(x); };
  }
  if (name == "pair" || name == "reversed pair") {  // of other modules, and values
    torch::manual_seed(0);
    Net net;
    nn::Sequential flat(nn::Flatten(), nn::Linear(3 * 24 * 24, 4), nn::Linear(4, 4));
    net->eval();
    flat->eval();
    return [net, flat, reversed = name != "pair"](const at::Tensor& x) mutable {
      if (reversed) return flat->forward(5 * x) + net(x);
      const at::Tensor first = net(x);
      return first + flat->forward(5 * x);
    };
  }
  torch::jit::Module script = torch::jit::load(name);
  return [script](const at::Tensor& x) mutable { return script.forward({x}).toTensor(); };
}

void serve(const Model& model, const std::string& phase) {
  static std::int64_t request = 0;
  const auto colon = phase.find(':');
  const std::string kind = phase.substr(0, colon);
  if (kind == "fork") {
    std::cout << std::flush;
    const pid_t child = ::fork();
    if (child == 0) {
      serve(model, phase.substr(colon + 1));
      std::cout << std::flush;
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    std::cout << "child: " << status << '\n';
    return;
  }
  const auto answer = [&] {
    at::manual_seed(++request);
    at::Tensor x = torch::randn({8, 3, 24, 24});
    if (kind == "noise") x = x + 0.7 * torch::randn_like(x);
    if (kind == "nan") x[0][0][0][0] = NAN;
    model(x);
  };
  if (kind == "clean" || kind == "nan") {
    for (int left = std::stoi(phase.substr(colon + 1)); left > 0; --left) answer();
  } else if (kind == "noise" || kind == "idle") {
    const auto begun = std::chrono::steady_clock::now();
    while (!std::filesystem::exists("stop")) {
      if (std::chrono::steady_clock::now() - begun > std::chrono::minutes(5))
        throw std::runtime_error("no stop");
      if (kind == "noise") answer();
      if (kind == "idle") std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } else if (kind == "segv") {
    ::raise(SIGSEGV);
  } else if (kind == "kill") {
    ::raise(SIGKILL);
  } else if (kind == "term") {
    ::raise(SIGTERM);
    for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } else if (kind == "abort") {
    std::abort();
  } else if (kind == "throw") {
    throw std::runtime_error("as asked");
  } else if (kind == "exit") {
    std::exit(6);
  }
  std::cout << "done: " << kind << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const torch::NoGradGuard guard;
  const Model model = open_model(argv[1]);
  for (int i = 2; i < argc; ++i) serve(model, argv[i]);
  return 5;
}
