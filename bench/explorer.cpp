// What an explorer adds to a training step of ResNet-18: in steps that are recorded, in those that are not,
// and in those of which the graph is made.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/optim/sgd.h>

#include <memory>

#include <torchtap/views/explorer/explorer.hpp>

#include "zoo/resnet.hpp"

namespace {

namespace explorer = torchtap::views::explorer;

/// A network, its optimizer and a batch of 8 images of 64×64.
struct Training {
  zoo::ResNet18 net;
  torch::optim::SGD optimizer{net->parameters(), 1e-3};
  at::Tensor images = torch::randn({8, 3, 64, 64});

  void step() {
    optimizer.zero_grad();
    net(images).pow(2).mean().backward();
    optimizer.step();
  }
};

void run(benchmark::State& state, const explorer::Options* options) {
  at::set_num_threads(1);
  Training training;
  for (int i = 0; i < 2; ++i) training.step();
  std::unique_ptr<explorer::Explorer> watched;
  if (options != nullptr) {
    watched = std::make_unique<explorer::Explorer>(*options);
    watched->watch(*training.net);
    for (int i = 0; i < 2; ++i) training.step();  // the first one makes the graph
  }
  for (auto _ : state) training.step();
}

void plain(benchmark::State& state) {
  run(state, nullptr);
}
void not_recorded(benchmark::State& state) {
  const auto options = explorer::Options().every(1'000'000'000);
  run(state, &options);
}
void recorded(benchmark::State& state) {
  const auto options = explorer::Options().every(1);
  run(state, &options);
}
void recorded_without_gradients(benchmark::State& state) {
  const auto options = explorer::Options().every(1).record(explorer::Input | explorer::Output);
  run(state, &options);
}
void by_default(benchmark::State& state) {
  const explorer::Options options;
  run(state, &options);
}
void graph_made(benchmark::State& state) {
  at::set_num_threads(1);
  Training training;
  training.step();
  for (auto _ : state) {
    state.PauseTiming();
    explorer::Explorer watched(explorer::Options().every(1).record(0));
    watched.watch(*training.net);
    state.ResumeTiming();
    training.step();
  }
}

BENCHMARK(plain)->Unit(benchmark::kMillisecond);
BENCHMARK(not_recorded)->Unit(benchmark::kMillisecond);
BENCHMARK(recorded)->Unit(benchmark::kMillisecond);
BENCHMARK(recorded_without_gradients)->Unit(benchmark::kMillisecond);
BENCHMARK(by_default)->Unit(benchmark::kMillisecond);
BENCHMARK(graph_made)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
