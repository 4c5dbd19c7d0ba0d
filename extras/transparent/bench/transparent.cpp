/// Cost of linking torchtap::transparent while nothing is hooked. Compiled twice, once without it; bench/run
/// alternates the two.

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/nn/modules/linear.h>

#include "zoo/resnet.hpp"

#if TORCHTAP_BENCH_TRANSPARENT
#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/moments.hpp>
#endif

namespace {

void identity(benchmark::State& state) {
  torch::nn::Identity module;
  const auto input = torch::ones({1, 100});
  for (auto _ : state) benchmark::DoNotOptimize(module(input));
}
BENCHMARK(identity);

struct PassImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE(Pass);

/// A user-defined type, called through its holder.
void own(benchmark::State& state) {
  Pass module;
  const auto input = torch::ones({1, 100});
  for (auto _ : state) benchmark::DoNotOptimize(module(input));
}
BENCHMARK(own);

void resnet18(benchmark::State& state) {
  at::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  zoo::ResNet18 net(zoo::ResNet18Options().width(16).num_classes(10));
  net->eval();
  const auto images = torch::ones({1, 3, 64, 64});
  for (auto _ : state) benchmark::DoNotOptimize(net(images));
}
BENCHMARK(resnet18)->Unit(benchmark::kMillisecond);

/// A training step: forward, backward and the change of the parameters.
void train(benchmark::State& state, zoo::ResNet18& net) {
  const auto images = torch::ones({8, 3, 64, 64});
  for (auto _ : state) {
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
    net(images).square().mean().backward();
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.sub_(parameter.grad(), 1e-4);
  }
}

void step(benchmark::State& state) {
  at::set_num_threads(1);
  zoo::ResNet18 net(zoo::ResNet18Options().width(16).num_classes(10));
  train(state, net);
}
BENCHMARK(step)->Unit(benchmark::kMillisecond);

#if TORCHTAP_BENCH_TRANSPARENT
/// The same with mean, variance, skewness and kurtosis of what every module returns.
void step_recorded(benchmark::State& state) {
  at::set_num_threads(1);
  zoo::ResNet18 net(zoo::ResNet18Options().width(16).num_classes(10));
  torchtap::recorders::ForwardOutput outputs(
      torchtap::reductions::Moments(torchtap::reductions::MomentsOptions().over_all(true)));
  outputs.attach(net);
  train(state, net);
}
BENCHMARK(step_recorded)->Unit(benchmark::kMillisecond);

auto hook(torch::nn::Module& module) {
  return torchtap::hooks::attach(module, torchtap::hooks::Kind::forward_pre, [](torchtap::hooks::Event&) {});
}

void identity_while_another_is_hooked(benchmark::State& state) {
  torch::nn::Identity other;
  const auto handle = hook(*other);
  identity(state);
}
BENCHMARK(identity_while_another_is_hooked);

void identity_hooked(benchmark::State& state) {
  torch::nn::Identity module;
  const auto handle = hook(*module);
  const auto input = torch::ones({1, 100});
  for (auto _ : state) benchmark::DoNotOptimize(module(input));
}
BENCHMARK(identity_hooked);

void own_hooked(benchmark::State& state) {
  Pass module;
  const auto handle = hook(*module);
  const auto input = torch::ones({1, 100});
  for (auto _ : state) benchmark::DoNotOptimize(module(input));
}
BENCHMARK(own_hooked);
#endif

}  // namespace

BENCHMARK_MAIN();
