/// Histograms of data that is concentrated on few bins or edges, compared with normal data, and of small
/// samples, one histogram for all elements or one for each. `bench/run` prints the ratios.

#include <ATen/Functions.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/reductions/histogram.hpp>

namespace tap = torchtap::reductions;

namespace {

constexpr std::int64_t kFloats = 16 << 20;  // 64 MB

at::Tensor normal(at::IntArrayRef sizes) {
  at::manual_seed(0);
  return at::randn(sizes);
}

void update(benchmark::State& state, tap::Histogram histogram, const at::Tensor& x) {
  histogram.update(x);  // the first sets the range
  for (auto _ : state) histogram.update(x);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(x.nbytes()));
}

void add_in_place(benchmark::State& state, const at::Tensor& x) {
  at::Tensor sum = at::zeros_like(x);
  for (auto _ : state) sum.add_(x);
}

tap::HistogramOptions fixed() {
  return tap::HistogramOptions(64, -4, 4);
}
tap::HistogramOptions growing() {
  return tap::HistogramOptions(64);
}
/// Bins whose edges no float32 expresses.
tap::HistogramOptions uneven() {
  return tap::HistogramOptions(100, -4, 4);
}

/// Kinds of data by name.
at::Tensor data(const std::string& kind) {
  const at::Tensor x = normal({kFloats});
  if (kind == "relu") return x.relu();
  if (kind == "zeros") return at::zeros_like(x);
  if (kind == "gradients") return at::mul(x, 1e-5);
  return x;
}

}  // namespace

int main(int argc, char** argv) {
  using benchmark::RegisterBenchmark;
  const std::pair<const char*, tap::HistogramOptions (*)()> ranges[] = {
      {"fixed", fixed}, {"growing", growing}, {"uneven", uneven}};
  for (const auto& [name, options] : ranges) {
    for (const char* kind : {"normal", "relu", "zeros", "gradients"}) {
      RegisterBenchmark((std::string(name) + "_" + kind + "_64MB").c_str(), [options = options,
                                                                             kind = std::string(kind)](
                                                                                benchmark::State& state) {
        update(state, tap::Histogram(options().over_all(true)), data(kind));
      })->Unit(benchmark::kMillisecond);
    }
  }
  const std::pair<const char*, std::vector<std::int64_t>> shapes[] = {
      {"1x100", {1, 100}}, {"1x4096", {1, 4096}}, {"32x512", {32, 512}}};
  for (const auto& [shape, sizes] : shapes) {
    for (const auto& [name, options] : ranges) {
      RegisterBenchmark((std::string(name) + "_all_" + shape).c_str(),
                        [options = options, sizes = sizes](benchmark::State& state) {
                          update(state, tap::Histogram(options().over_all(true)), normal(sizes));
                        });
      RegisterBenchmark((std::string(name) + "_each_" + shape).c_str(),
                        [options = options, sizes = sizes](benchmark::State& state) {
                          update(state, tap::Histogram(options()), normal(sizes));
                        });
    }
    RegisterBenchmark((std::string("integers_all_") + shape).c_str(),
                      [sizes = sizes](benchmark::State& state) {
                        update(state, tap::Histogram(fixed().over_all(true)), normal(sizes).to(at::kLong));
                      });
    RegisterBenchmark((std::string("add_") + shape).c_str(),
                      [sizes = sizes](benchmark::State& state) { add_in_place(state, normal(sizes)); });
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
