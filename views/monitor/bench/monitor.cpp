/// What a monitor adds to a forward, on one thread. Models of equal weights take turns, in another order each
/// time, and medians are compared, so that the ratios stand a busy machine: `none_again` says how far. What
/// the default adds is that of forwards with a ring, and of N of them one that is sampled.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>
#include <time.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <zoo/resnet.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <torchtap/base/remove_folder.hpp>
#include <torchtap/views/monitor/monitor.hpp>

namespace {

using torchtap::views::monitor::Monitor;
using torchtap::views::monitor::MonitorOptions;

/// Seconds of this thread on the processor: what the monitor's own thread does is not in it.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// A value of the monitor's metrics.
double metric(const Monitor& watch, const std::string& name) {
  const std::string text = watch.metrics(), sample = "\n" + name + "{model=\"model\"} ";
  return std::stod(text.substr(text.find(sample) + sample.size()));
}

constexpr std::array<const char*, 6> names{"none", "none_again", "idle", "ring", "default", "sampled"};

/// Hardly any forward is sampled with such a share, so that hooks and the look at the output are left.
constexpr double least = 1e-9;

template <class Model>
void forwards(benchmark::State& state, const std::function<Model()>& make, const at::Tensor& input,
              int warm_up) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const std::string folder = std::filesystem::temp_directory_path() / "torchtap-bench-monitor";
  std::vector<Model> models;
  std::vector<std::unique_ptr<Monitor>> monitors(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    models.push_back(make());
    models.back()->eval();
  }
  const auto watch = [&](std::size_t i, const MonitorOptions& options) {
    monitors[i] = std::make_unique<Monitor>(*models[i], "", options);
  };
  watch(2, MonitorOptions().cost(least));
  watch(3, MonitorOptions().cost(least).incidents(folder));
  watch(4, MonitorOptions().incidents(folder));
  watch(5, MonitorOptions().incidents(folder).cost(1));

  std::mt19937 random(7);
  std::array<std::vector<double>, names.size()> seconds;
  std::array<std::size_t, names.size()> order{0, 1, 2, 3, 4, 5};
  const auto round = [&](bool counts) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      const double began = now();
      benchmark::DoNotOptimize(models[i]->forward(input));
      if (counts) seconds[i].push_back(now() - began);
    }
  };
  for (int i = 0; i < warm_up; ++i) round(false);
  const auto own = [&] { return metric(*monitors[4], "torchtap_monitor_seconds_total"); };
  const double own_before = own();
  for (auto _ : state) round(true);

  const auto median = [&](std::size_t i) {
    const auto middle = seconds[i].begin() + static_cast<std::ptrdiff_t>(seconds[i].size() / 2);
    std::nth_element(seconds[i].begin(), middle, seconds[i].end());
    return *middle;
  };
  const double none = median(0), period = metric(*monitors[4], "torchtap_sampling_period");
  const auto added = [&](double to) { return 100 * (to / none - 1); };
  state.counters["none_us"] = 1e6 * none;
  state.counters["none_again_%"] = added(median(1));
  state.counters["idle_%"] = added(median(2));
  state.counters["ring_%"] = added(median(3));
  state.counters["sampled_%"] = added(median(5));
  state.counters["default_%"] = added(median(3) + (median(5) - median(3)) / period);
  state.counters["default_N"] = period;
  state.counters["default_own_%"] =
      100 * (own() - own_before) / (none * static_cast<double>(state.iterations()));
  monitors.clear();
  torchtap::base::remove_folder(folder);
}

void resnet18(benchmark::State& state) {
  const std::int64_t size = state.range(0);
  forwards<zoo::ResNet18>(
      state,
      [] {
        at::manual_seed(1);
        return zoo::ResNet18(zoo::ResNet18Options());
      },
      at::rand({1, 3, size, size}), 40);
}
BENCHMARK(resnet18)->Arg(64)->Arg(224)->Unit(benchmark::kMillisecond);

/// Linear layers of a width, four of them.
void mlp(benchmark::State& state) {
  const std::int64_t width = state.range(0);
  forwards<torch::nn::Sequential>(
      state,
      [&] {
        at::manual_seed(1);
        torch::nn::Sequential net;
        for (int i = 0; i < 4; ++i) {
          net->push_back(torch::nn::Linear(width, width));
          net->push_back(torch::nn::ReLU());
        }
        return net;
      },
      at::rand({1, width}), 200);
}
BENCHMARK(mlp)->Arg(64)->Arg(512)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
