/// Fingerprints compared with a loop that only sums, and those of small tensors. From memory both take turns,
/// piece by piece, so that `ratio`, the speed of the loop that a fingerprint has, stands a busy machine.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>
#include <time.h>
#include <zoo/resnet.hpp>

#include <cstdint>
#include <optional>

#include <torchtap/views/compare/fingerprint.hpp>
#include <torchtap/views/compare/fingerprints.hpp>

namespace {

using torchtap::views::compare::fingerprint;

/// Seconds of this thread on the processor.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Sums 32-bit floats side by side, for vectors of any width, and fetches as far ahead as a fingerprint does.
float plain_sum(const float* x, std::int64_t n) {
  constexpr std::int64_t kLanes = 64;
  float sums[kLanes] = {};
  for (std::int64_t i = 0; i + kLanes <= n; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; j += 16) __builtin_prefetch(x + i + j + 2048);
    for (std::int64_t j = 0; j < kLanes; ++j) sums[j] += x[i + j];
  }
  float sum = 0;
  for (const float one : sums) sum += one;
  return sum;
}

/// A tensor of `bytes` in memory, every second MiB of which is read by the loop, the others by fingerprints.
void from_memory(benchmark::State& state, at::ScalarType type, std::int64_t bytes) {
  constexpr std::int64_t kMiB = 1 << 20;
  const at::Tensor x =
      at::randn({bytes / kMiB, kMiB / static_cast<std::int64_t>(c10::elementSize(type))}).to(type);
  double loop = 0, print = 0;
  for (auto _ : state) {
    for (std::int64_t i = 0; i < x.size(0); i += 2) {
      const at::Tensor summed = x[i], printed = x[i + 1];
      const double before = now();
      benchmark::DoNotOptimize(plain_sum(static_cast<const float*>(summed.data_ptr()), kMiB / 4));
      const double between = now();
      benchmark::DoNotOptimize(fingerprint(printed));
      loop += between - before;
      print += now() - between;
    }
  }
  const double read = static_cast<double>(state.iterations()) * static_cast<double>(bytes) / 2e9;
  state.counters["loop_GB/s"] = read / loop;
  state.counters["fingerprint_GB/s"] = read / print;
  state.counters["ratio"] = loop / print;
}
BENCHMARK_CAPTURE(from_memory, float32_512MB, at::kFloat, 512 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(from_memory, bfloat16_512MB, at::kBFloat16, 512 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(from_memory, float16_512MB, at::kHalf, 512 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(from_memory, float64_512MB, at::kDouble, 512 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(from_memory, int64_512MB, at::kLong, 512 << 20)->Unit(benchmark::kMillisecond);

void in_cache(benchmark::State& state, at::ScalarType type) {
  const at::Tensor x = at::randn({state.range(0)}).to(type);
  for (auto _ : state) benchmark::DoNotOptimize(fingerprint(x));
}
BENCHMARK_CAPTURE(in_cache, float32, at::kFloat)
    ->Arg(8)
    ->Arg(64)
    ->Arg(256)
    ->Arg(1000)
    ->Arg(4096)
    ->Arg(1 << 16);
BENCHMARK_CAPTURE(in_cache, bfloat16, at::kBFloat16)->Arg(64)->Arg(1000)->Arg(1 << 16);

/// The same values in another memory format: copied piece by piece.
void channels_last(benchmark::State& state) {
  const at::Tensor x = at::randn({8, 64, 56, 56}).contiguous(at::MemoryFormat::ChannelsLast);
  for (auto _ : state) benchmark::DoNotOptimize(fingerprint(x));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(x.nbytes()));
}
BENCHMARK(channels_last)->Unit(benchmark::kMillisecond);

/// All of a large tensor on LibTorch's threads.
void whole_512MB(benchmark::State& state) {
  const at::Tensor x = at::randn({128 << 20});
  for (auto _ : state) benchmark::DoNotOptimize(fingerprint(x));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(x.nbytes()));
}
BENCHMARK(whole_512MB)->Unit(benchmark::kMillisecond)->UseRealTime();

/// A forward of a ResNet-18, on 8 images of 112 x 112, as it is or with fingerprints of each forward.
void forward(benchmark::State& state, bool prints) {
  at::manual_seed(0);
  const c10::InferenceMode inference;
  zoo::ResNet18 model;
  model->eval();
  const at::Tensor images = at::randn({8, 3, 112, 112});
  std::optional<torchtap::views::compare::Fingerprints> writer;
  if (prints) {
    writer.emplace("/dev/null", torchtap::views::compare::FingerprintsOptions().forwards(0));
    writer->attach(*model);
    model->forward(images);  // writes the weights
  }
  for (auto _ : state) benchmark::DoNotOptimize(model->forward(images));
}
BENCHMARK_CAPTURE(forward, bare, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forward, with_fingerprints, true)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
