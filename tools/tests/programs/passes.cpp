// A program that knows nothing of torchtap, and runs models as programs do: in training, with several calls
// or models in a step, in loops of a cell, in threads, made anew. Prints the results, so that any change is
// seen.
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace {

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(1, 4, 3))};
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(4 * 36, 10))};
  torch::nn::Linear unused{register_module("unused", torch::nn::Linear(2, 2))};
  std::function<void()> half_way;

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor features = torch::relu(conv(x)).flatten(1);
    if (half_way) std::exchange(half_way, nullptr)();
    return fc(features);
  }
};
TORCH_MODULE(Net);

/// Begins with a Sequential.
struct StemmedImpl : torch::nn::Module {
  torch::nn::Sequential stem{register_module(
      "stem", torch::nn::Sequential(torch::nn::Conv2d(1, 2, 3), torch::nn::ReLU(), torch::nn::Flatten()))};
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(2 * 36, 10))};
  at::Tensor forward(const at::Tensor& x) { return fc(stem->forward(x)); }
};
TORCH_MODULE(Stemmed);

struct GeneratorImpl : torch::nn::Module {
  torch::nn::Linear up{register_module("up", torch::nn::Linear(5, 64))};
  at::Tensor forward(const at::Tensor& noise) { return torch::tanh(up(noise)).view({-1, 1, 8, 8}); }
};
TORCH_MODULE(Generator);

struct CellImpl : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(3, 6))};
  torch::nn::Linear state{register_module("state", torch::nn::Linear(6, 6))};
  at::Tensor forward(const at::Tensor& x, const at::Tensor& h) { return torch::tanh(in(x) + state(h)); }
};
TORCH_MODULE(Cell);

at::Tensor images(int step) {
  return torch::linspace(-1, 0.1 * step, 2 * 64).view({2, 1, 8, 8});
}

void print(const torch::nn::Module& module) {
  for (const auto& one : module.named_parameters()) {
    std::cout << one.key() << ' ' << one.value().sum().item<double>() << ' '
              << one.value().norm().item<double>() << '\n';
  }
}

void train(Net net, int steps, int calls) {
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < steps; ++step) {
    at::Tensor loss = torch::zeros({});
    for (int i = 0; i < calls; ++i) loss = loss + net(images(step + i)).square().mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}

void stemmed() {
  Stemmed net;
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    net(images(step)).square().mean().backward();
    optimizer.step();
  }
  print(*net);
}

void evaluate(Net net, int passes) {
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < passes; ++i) std::cout << net(images(i)).sum().item<double>() << '\n';
}

void adversaries() {
  Generator generator;
  Net critic;
  torch::optim::SGD of_generator(generator->parameters(), 0.1), of_critic(critic->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    critic->zero_grad();
    (critic(images(step)).mean() - critic(generator(torch::ones({2, 5})).detach()).mean()).backward();
    of_critic.step();
    generator->zero_grad();
    critic(generator(torch::ones({2, 5}))).mean().backward();
    of_generator.step();
  }
  print(*generator);
  print(*critic);
}

/// As DCGAN is trained: the generator's output of the critic's step is what its own step goes backward
/// through.
void shared_fakes() {
  Generator generator;
  Net critic;
  torch::optim::SGD of_generator(generator->parameters(), 0.1), of_critic(critic->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    critic->zero_grad();
    critic(images(step)).mean().backward();
    const at::Tensor fake = generator(torch::ones({2, 5}));
    critic(fake.detach()).mean().backward();
    of_critic.step();
    generator->zero_grad();
    critic(fake).mean().backward();
    of_generator.step();
    generator->zero_grad();
  }
  print(*generator);
  print(*critic);
}

void sequences() {
  const torch::NoGradGuard no_grad;
  Cell cell;
  cell->eval();
  for (int sequence = 0; sequence < 4; ++sequence) {
    at::Tensor h = torch::zeros({1, 6});
    for (int i = 0; i < 3 + sequence; ++i) h = cell(torch::full({1, 3}, 0.1 * i), h);
    std::cout << h.sum().item<double>() << '\n';
  }
}

/// One thread makes the models, another one runs them.
void exchanged() {
  constexpr int kModels = 30;
  std::atomic<int> made{0}, served{0};
  Net net{nullptr};
  std::thread server([&] {
    const torch::NoGradGuard no_grad;
    for (int i = 1; i <= kModels; ++i) {
      while (made != i) std::this_thread::yield();
      for (int step = 0; step < 3; ++step) std::cout << net(images(step)).sum().item<double>() << '\n';
      served = i;
    }
  });
  for (int i = 1; i <= kModels; ++i) {
    net = Net();
    net->eval();
    made = i;
    while (served != i) std::this_thread::yield();
  }
  server.join();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "train";
  at::set_num_threads(1);
  torch::manual_seed(3);
  std::cout.precision(17);
  if (what == "adversaries") {
    adversaries();
  } else if (what == "shared fakes") {
    shared_fakes();
  } else if (what == "sequences") {
    sequences();
  } else if (what == "stemmed") {
    stemmed();
  } else if (what == "exchanged") {
    exchanged();
  } else if (what == "anew") {
    for (int i = 0; i < 3; ++i) {
      Net net;
      train(net, 2, 1);
      const std::weak_ptr<torch::nn::Module> left = net.ptr();
      net = nullptr;
      std::cout << "alive: " << left.expired() << '\n';
    }
  } else {
    Net net;
    if (what == "never asked") {
      evaluate(net, 3);
    } else if (what == "threads") {
      net->eval();
      for (int round = 0; round < 2; ++round) {
        std::thread([&] { evaluate(net, 3); }).join();
      }
    } else if (what == "at once") {  // a thread runs the model while main is in its forward
      net->eval();
      evaluate(net, 2);
      net->half_way = [&] { std::thread([&] { evaluate(net, 3); }).join(); };
      evaluate(net, 2);
    } else if (what == "workers" || what == "warmed up") {  // main waits for them
      Net second;
      second->eval();
      if (what == "workers") train(net, 5, 1);
      if (what == "warmed up") evaluate(second, 6);
      std::thread([&] { evaluate(second, 20); }).join();
      evaluate(second, 2);
      print(*second);
    } else if (what == "evaluated") {
      net->eval();
      evaluate(net, 6);
    } else if (what == "fork") {
      net->eval();
      evaluate(net, 2);
      std::cout << std::flush;
      if (::fork() == 0) {
        evaluate(net, 4);
        std::exit(0);
      }
      ::wait(nullptr);
    } else if (what == "fails") {
      net->train();
      train(net, 2, 1);
      net->half_way = [] { throw std::runtime_error("half-way"); };
      try {
        train(net, 1, 1);
      } catch (const std::runtime_error& error) {
        std::cout << error.what() << '\n';
      }
      train(net, 2, 1);
    } else {
      train(net, 5, what == "siamese" ? 2 : 1);
      net->eval();
      evaluate(net, 4);
      if (what == "killed" || what == "terminated") {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        std::raise(what == "killed" ? SIGKILL : SIGTERM);
        for (;;) ::pause();
      }
    }
    print(*net);
  }
  return 6;
}
