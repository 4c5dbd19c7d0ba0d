/// Cost of a report, compared with the same training step without. `bench/run` prints the ratios.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>

#include <torchtap/views/report/report.hpp>

#include "zoo/resnet.hpp"

namespace report = torchtap::views::report;

namespace {

/// Forward and backward of a ResNet-18, 8 images of 224x224.
void step(benchmark::State& state, const std::optional<report::ReportOptions>& options) {
  at::set_num_threads(1);
  static zoo::ResNet18 net(zoo::ResNet18Options().num_classes(1000));
  const auto images = at::ones({8, 3, 224, 224});
  const auto run = [&](report::Repeat* recording) {
    const auto loss = net(images).sum();
    if (recording != nullptr) recording->phase(report::Phase::backward);
    loss.backward();
  };
  std::optional<report::Report> measured;
  if (options) measured.emplace(*net, *options);
  for (auto _ : state) {
    if (!measured) {
      run(nullptr);
      continue;
    }
    auto recording = measured->record();
    run(&recording);
  }
}
BENCHMARK_CAPTURE(step, bare, std::nullopt)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, all, report::ReportOptions())->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, times_alone,
                  report::ReportOptions().memory(false).work(false).non_finite(report::OnNonFinite::ignore))
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
