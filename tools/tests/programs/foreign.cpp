// A program that knows nothing of torchtap: runs a small ResNet, prints the result and ends as its arguments
// say.
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

#include "zoo/resnet.hpp"

int main(int argc, char** argv) {
  const std::string ending = argc > 1 ? argv[1] : "return";
  at::set_num_threads(1);
  torch::manual_seed(3);
  zoo::ResNet18 net(zoo::ResNet18Options().num_classes(10).width(8));
  net->eval();
  torch::nn::Linear loose(10, 4);  // belongs to no model
  const auto images = torch::linspace(-1, 1, 4 * 3 * 32 * 32).view({4, 3, 32, 32});
  for (int i = 0; i < 3; ++i) {
    const auto scores = loose(net(images * (i + 1)));
    if (ending == "backward") scores.sum().backward();
    std::cout << scores << std::endl;
  }
  if (ending == "train") {
    net->train();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int i = 0; i < 4; ++i) {
      optimizer.zero_grad();
      net(images * (i + 1)).square().mean().backward();
      optimizer.step();
    }
    for (const auto& one : net->named_parameters()) {  // to the bit
      std::cout << one.key() << ' ' << one.value().view(at::kInt).sum().item<std::int64_t>() << '\n';
    }
  }
  torch::save(net->conv1(images), "conv1.pt");
  if (ending == "exit") std::exit(7);
  if (ending == "throw") throw std::runtime_error("as told");
  if (ending == "abort") std::abort();
  if (ending == "terminate" || ending == "interrupt") {
    std::cout << "waiting" << std::endl;
    for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (ending == "handled") {
    std::signal(SIGTERM, [](int) { std::exit(9); });
    std::raise(SIGTERM);
  }
  if (ending == "fork") {
    if (::fork() == 0) std::exit(0);
  }
  return 5;
}
