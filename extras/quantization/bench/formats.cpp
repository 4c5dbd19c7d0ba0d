/// Formats compared with the largest magnitude of the same memory and with the error of one format in ATen's
/// operations. `bench/run` prints the ratios.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <cstdint>

#include <torchtap/quantization/formats.hpp>
#include <torchtap/reductions/reductions.hpp>

namespace {

namespace tap = torchtap::reductions;
using torchtap::quantization::Formats;
using torchtap::quantization::FormatsOptions;

constexpr std::int64_t kFloats = 16 << 20;  // 64 MB

at::Tensor normal(at::IntArrayRef sizes) {
  at::manual_seed(0);
  return at::randn(sizes);
}

template <class R>
void update(benchmark::State& state, R reduction, const at::Tensor& x) {
  for (auto _ : state) reduction.update(x);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(x.nbytes()));
}

Formats whole() {
  return Formats(FormatsOptions().over_all(true));
}

void formats_64MB(benchmark::State& state) {
  update(state, whole(), normal({kFloats}));
}
BENCHMARK(formats_64MB)->Unit(benchmark::kMillisecond);

void formats_one_thread_64MB(benchmark::State& state) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  formats_64MB(state);
  at::set_num_threads(threads);
}
BENCHMARK(formats_one_thread_64MB)->Unit(benchmark::kMillisecond);

void formats_log_histogram_64MB(benchmark::State& state) {
  const tap::LogHistogram histogram(tap::LogHistogramOptions().over_all(true));
  update(state, tap::Series(whole(), histogram), normal({kFloats}));
}
BENCHMARK(formats_log_histogram_64MB)->Unit(benchmark::kMillisecond);

void formats_channels(benchmark::State& state) {
  update(state, Formats(FormatsOptions().over({0, 2, 3})), normal({32, 256, 56, 56}));
}
BENCHMARK(formats_channels)->Unit(benchmark::kMillisecond);

void formats_features(benchmark::State& state) {
  update(state, Formats(FormatsOptions({"e4m3", "e5m2", "bf16", "f16", "int8"}).over({0, 1})),
         normal({32, 128, 1024}));
}
BENCHMARK(formats_features)->Unit(benchmark::kMillisecond);

void abs_max_64MB(benchmark::State& state) {  // reads the same memory
  update(state, tap::AbsMax(tap::AbsMaxOptions().over_all(true)), normal({kFloats}));
}
BENCHMARK(abs_max_64MB)->Unit(benchmark::kMillisecond);

void bfloat16_casts_64MB(benchmark::State& state) {  // one of the seven formats alone, and its error
  const at::Tensor x = normal({kFloats});
  for (auto _ : state) benchmark::DoNotOptimize(at::sub(x, x.to(at::kBFloat16)).square().sum());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(x.nbytes()));
}
BENCHMARK(bfloat16_casts_64MB)->Unit(benchmark::kMillisecond);

void small(benchmark::State& state) {  // a sample of 1 x N
  update(state, whole(), normal({1, state.range(0)}));
}
BENCHMARK(small)->Arg(100)->Arg(512)->Arg(4096);

void small_add(benchmark::State& state) {
  const at::Tensor x = normal({1, state.range(0)});
  at::Tensor sum = at::zeros_like(x);
  for (auto _ : state) sum.add_(x);
}
BENCHMARK(small_add)->Arg(100)->Arg(512)->Arg(4096);

}  // namespace

BENCHMARK_MAIN();
