/// Reductions compared with their lower bound (one read of the same memory, the product itself) and with the
/// ATen operations that a user would compose. `bench/run` prints the ratios.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/reductions/reductions.hpp>

namespace tap = torchtap::reductions;

namespace {

constexpr std::int64_t kFloats = 16 << 20;  // 64 MB

at::Tensor normal(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  at::manual_seed(0);
  return at::randn(sizes).to(type);
}

void set_bytes(benchmark::State& state, std::int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

/// Reads memory in a plain loop: several sums side by side, for vectors of any width.
float plain_sum(const float* x, std::int64_t n) {
  constexpr std::int64_t kLanes = 32;
  float sums[kLanes] = {};
  for (std::int64_t i = 0; i + kLanes <= n; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) sums[j] += x[i + j];
  }
  float sum = 0;
  for (const float one : sums) sum += one;
  return sum;
}

void read_64MB(benchmark::State& state) {
  const at::Tensor x = normal({kFloats});
  const float* const data = x.data_ptr<float>();
  for (auto _ : state) {
    // One part per thread of the reductions.
    std::vector<float> sums(static_cast<std::size_t>(at::get_num_threads()));
    at::parallel_for(0, kFloats, kFloats / at::get_num_threads(), [&](std::int64_t begin, std::int64_t end) {
      sums[static_cast<std::size_t>(at::get_thread_num())] = plain_sum(data + begin, end - begin);
    });
    benchmark::DoNotOptimize(sums.data());
  }
  set_bytes(state, x.nbytes());
}
BENCHMARK(read_64MB)->Unit(benchmark::kMillisecond);

template <class R>
void update(benchmark::State& state, R reduction, const at::Tensor& x) {
  for (auto _ : state) reduction.update(x);
  set_bytes(state, static_cast<std::int64_t>(x.nbytes()));
}

auto series() {
  return tap::Series(tap::Moments(tap::MomentsOptions().over_all(true)),
                     tap::Min(tap::MinOptions().over_all(true)), tap::Max(tap::MaxOptions().over_all(true)),
                     tap::Count(tap::CountOptions().over_all(true)));
}

void series_64MB(benchmark::State& state) {
  update(state, series(), normal({kFloats}));
}
BENCHMARK(series_64MB)->Unit(benchmark::kMillisecond);

void series_bfloat16_64MB(benchmark::State& state) {
  update(state, series(), normal({2 * kFloats}, at::kBFloat16));
}
BENCHMARK(series_bfloat16_64MB)->Unit(benchmark::kMillisecond);

void series_half_64MB(benchmark::State& state) {
  update(state, series(), normal({2 * kFloats}, at::kHalf));
}
BENCHMARK(series_half_64MB)->Unit(benchmark::kMillisecond);

void composed_64MB(benchmark::State& state) {
  const at::Tensor x = normal({kFloats});
  for (auto _ : state) {
    benchmark::DoNotOptimize(x.sum());
    benchmark::DoNotOptimize(at::var_mean(x, /*unbiased=*/true));
    benchmark::DoNotOptimize(x.min());
    benchmark::DoNotOptimize(x.max());
    benchmark::DoNotOptimize(x.isnan().any());
  }
  set_bytes(state, x.nbytes());
}
BENCHMARK(composed_64MB)->Unit(benchmark::kMillisecond);

void histogram_64MB(benchmark::State& state) {
  update(state, tap::Histogram(tap::HistogramOptions(64, -4, 4).over_all(true)), normal({kFloats}));
}
BENCHMARK(histogram_64MB)->Unit(benchmark::kMillisecond);

void histogram_growing_64MB(benchmark::State& state) {
  update(state, tap::Histogram(tap::HistogramOptions(64).over_all(true)), normal({kFloats}));
}
BENCHMARK(histogram_growing_64MB)->Unit(benchmark::kMillisecond);

void histc_64MB(benchmark::State& state) {
  const at::Tensor x = normal({kFloats});
  for (auto _ : state) benchmark::DoNotOptimize(at::histc(x, 64, -4, 4));
  set_bytes(state, x.nbytes());
}
BENCHMARK(histc_64MB)->Unit(benchmark::kMillisecond);

// Bins from the bits of the numbers, of four kinds of data: spread out, and concentrated on few bins, where
// the increments of one counter would have to wait for each other.
at::Tensor kind_of_data(const std::string& kind) {
  if (kind == "zeros") return at::zeros({kFloats});
  const at::Tensor x = normal({kFloats});
  return kind == "relu" ? x.relu() : kind == "gradients" ? x * 1e-5 : x;
}

void log_histogram_of(benchmark::State& state, const std::string& kind) {
  update(state, tap::LogHistogram(tap::LogHistogramOptions().over_all(true)), kind_of_data(kind));
}

void histogram_of(benchmark::State& state, const std::string& kind) {
  update(state, tap::Histogram(tap::HistogramOptions(64, -4, 4).over_all(true)), kind_of_data(kind));
}

void histc_of(benchmark::State& state, const std::string& kind) {
  const at::Tensor x = kind_of_data(kind);
  for (auto _ : state) benchmark::DoNotOptimize(at::histc(x, 64, -4, 4));
  set_bytes(state, static_cast<std::int64_t>(x.nbytes()));
}

[[maybe_unused]] const bool kinds_registered = [] {
  for (const char* const kind : {"normal", "relu", "zeros", "gradients"}) {
    const auto add = [&](const std::string& name, void (*run)(benchmark::State&, const std::string&)) {
      benchmark::RegisterBenchmark((name + "_64MB_" + kind).c_str(), run, std::string(kind))
          ->Unit(benchmark::kMillisecond);
    };
    add("log_histogram", log_histogram_of);
    add("histogram", histogram_of);
    add("histc", histc_of);
  }
  return true;
}();

void log_histogram_with_moments_64MB(benchmark::State& state) {
  update(state,
         tap::Series(tap::Moments(tap::MomentsOptions().over_all(true)),
                     tap::LogHistogram(tap::LogHistogramOptions().over_all(true))),
         normal({kFloats}));
}
BENCHMARK(log_histogram_with_moments_64MB)->Unit(benchmark::kMillisecond);

void log_histogram_half_64MB(benchmark::State& state) {
  update(state, tap::LogHistogram(tap::LogHistogramOptions().over_all(true)),
         normal({2 * kFloats}, at::kHalf));
}
BENCHMARK(log_histogram_half_64MB)->Unit(benchmark::kMillisecond);

void log_histogram_small(benchmark::State& state) {  // one row of 100 elements
  update(state, tap::LogHistogram(tap::LogHistogramOptions().over_all(true)), normal({1, 100}));
}
BENCHMARK(log_histogram_small);

void log_histogram_channels(benchmark::State& state) {
  update(state, tap::LogHistogram(tap::LogHistogramOptions().over({0, 2, 3})), normal({32, 256, 56, 56}));
}
BENCHMARK(log_histogram_channels)->Unit(benchmark::kMillisecond);

void log_histogram_elementwise(benchmark::State& state) {
  update(state, tap::LogHistogram(), normal({32, 512}));
}
BENCHMARK(log_histogram_elementwise)->Unit(benchmark::kMicrosecond);

// Elementwise: each element of the sample updates four float64 sums, which are read and written.
constexpr std::int64_t kElements = 4 << 20;
constexpr std::int64_t kElementwiseBytes = kElements * (4 + 2 * 4 * 8);

void moments_elementwise(benchmark::State& state) {
  const at::Tensor x = normal({kElements});
  tap::Moments moments;
  moments.update(x);
  for (auto _ : state) moments.update(x);
  set_bytes(state, kElementwiseBytes);
}
BENCHMARK(moments_elementwise)->Unit(benchmark::kMillisecond);

// The same elements as channels-last, as networks of convolutions have them.
void moments_elementwise_channels_last(benchmark::State& state) {
  const at::Tensor x = normal({32, 64, 32, 64}).contiguous(at::MemoryFormat::ChannelsLast);
  tap::Moments moments;
  moments.update(x);
  for (auto _ : state) moments.update(x);
  set_bytes(state, kElementwiseBytes);
}
BENCHMARK(moments_elementwise_channels_last)->Unit(benchmark::kMillisecond);

void histogram_elementwise(benchmark::State& state) {
  update(state, tap::Histogram(tap::HistogramOptions(64, -4, 4)), normal({4, 64, 16, 16}));
}
BENCHMARK(histogram_elementwise)->Unit(benchmark::kMicrosecond);

void histogram_elementwise_channels_last(benchmark::State& state) {
  update(state, tap::Histogram(tap::HistogramOptions(64, -4, 4)),
         normal({4, 64, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast));
}
BENCHMARK(histogram_elementwise_channels_last)->Unit(benchmark::kMicrosecond);

void triad(benchmark::State& state, std::int64_t bytes) {
  const std::int64_t n = bytes / 24;
  const at::Tensor b = at::ones({n}, at::kDouble), c = at::ones({n}, at::kDouble);
  at::Tensor a = at::zeros({n}, at::kDouble);
  auto* const to = a.data_ptr<double>();
  const auto *const x = b.data_ptr<double>(), *const y = c.data_ptr<double>();
  for (auto _ : state) {
    at::parallel_for(0, n, 32768, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = x[i] + 3.0 * y[i];
    });
    benchmark::ClobberMemory();
  }
  set_bytes(state, 24 * n);
}
void triad_elementwise(benchmark::State& state) {
  triad(state, kElementwiseBytes);
}
BENCHMARK(triad_elementwise)->Unit(benchmark::kMillisecond);

void composed_elementwise(
    benchmark::State& state) {  // Pébay's update in place, in as few operations as possible
  const at::Tensor x = normal({kElements});
  const auto zeros = [&] { return at::zeros({kElements}, at::kDouble); };
  at::Tensor mean = zeros(), m2 = zeros(), m3 = zeros(), m4 = zeros(), delta = zeros(), part = zeros(),
             square = zeros(), between = zeros();
  double n = 0;
  for (auto _ : state) {
    ++n;
    at::sub_out(delta, x.to(at::kDouble), mean);
    at::div_out(part, delta, at::scalar_tensor(n, at::kDouble));
    at::mul_out(square, part, part);
    at::mul_out(between, delta, part).mul_(n - 1);
    mean.add_(part);
    m4.addcmul_(between, square, n * n - 3 * n + 3).addcmul_(square, m2, 6).addcmul_(part, m3, -4);
    m3.addcmul_(between, part, n - 2).addcmul_(part, m2, -3);
    m2.add_(between);
  }
  set_bytes(state, kElementwiseBytes);
}
BENCHMARK(composed_elementwise)->Unit(benchmark::kMillisecond);

const std::vector<std::int64_t> kMaps{32, 256, 56, 56};
constexpr std::int64_t kMapsBytes = 4LL * 32 * 256 * 56 * 56;

void moments_channels(benchmark::State& state) {
  update(state, tap::Moments(tap::MomentsOptions().over({0, 2, 3})), normal(kMaps));
}
BENCHMARK(moments_channels)->Unit(benchmark::kMillisecond);

void triad_channels(benchmark::State& state) {
  triad(state, kMapsBytes);
}
BENCHMARK(triad_channels)->Unit(benchmark::kMillisecond);

void composed_channels(benchmark::State& state) {
  const at::Tensor x = normal(kMaps);
  const std::vector<std::int64_t> dims{0, 2, 3};
  for (auto _ : state) {
    auto [variance, mean] = at::var_mean(x, at::IntArrayRef(dims), /*unbiased=*/true, /*keepdim=*/true);
    const at::Tensor d = at::sub(x, mean), square = d.square();
    benchmark::DoNotOptimize(at::mul(square, d).mean(at::IntArrayRef(dims)));
    benchmark::DoNotOptimize(square.square().mean(at::IntArrayRef(dims)));
    benchmark::DoNotOptimize(variance);
  }
  set_bytes(state, kMapsBytes);
}
BENCHMARK(composed_channels)->Unit(benchmark::kMillisecond);

void covariance_4096x512(benchmark::State& state) {
  update(state, tap::Covariance(tap::CovarianceOptions().over({0})), normal({4096, 512}));
}
BENCHMARK(covariance_4096x512)->Unit(benchmark::kMillisecond);

void addmm_4096x512(benchmark::State& state) {
  const at::Tensor x = normal({4096, 512}, at::kDouble), t = x.t();
  at::Tensor product = at::zeros({512, 512}, at::kDouble);
  for (auto _ : state) product.addmm_(t, x);
  set_bytes(state, static_cast<std::int64_t>(x.nbytes()));
}
BENCHMARK(addmm_4096x512)->Unit(benchmark::kMillisecond);

void quantiles(benchmark::State& state, const at::Tensor& x) {
  update(state, tap::Quantiles(tap::QuantilesOptions().over_all(true)), x);
  state.counters["values"] =
      benchmark::Counter(static_cast<double>(state.iterations() * x.numel()), benchmark::Counter::kIsRate);
}
void quantiles_64MB(benchmark::State& state) {
  quantiles(state, normal({kFloats}));
}
BENCHMARK(quantiles_64MB)->Unit(benchmark::kMillisecond);
void quantiles_64KB(benchmark::State& state) {
  quantiles(state, normal({16384}));
}
BENCHMARK(quantiles_64KB)->Unit(benchmark::kMillisecond);

void sort_64MB(benchmark::State& state) {  // for exact quantiles
  const at::Tensor x = normal({kFloats});
  for (auto _ : state) benchmark::DoNotOptimize(at::sort(x));
  set_bytes(state, x.nbytes());
}
BENCHMARK(sort_64MB)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace

BENCHMARK_MAIN();
