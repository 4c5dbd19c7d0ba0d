/// What recording every module costs a transformer on a device, when it decodes (one token) and reads a
/// prompt: in eager mode, and in CUDA graphs where the compiler has CUDA's headers. Compare each with
/// "nothing" of its size.
#include "zoo/gpt.hpp"

#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include <torchtap/cuda/fused_kernels.hpp>
#include <torchtap/torchtap.hpp>

#if __has_include(<cuda_runtime_api.h>) && __has_include(<ATen/cuda/CUDAGraph.h>)
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#define TORCHTAP_BENCH_GRAPHS 1
#endif

namespace tap = torchtap;

namespace {

constexpr std::int64_t kVocabulary = 50257;
constexpr std::int64_t kDeferred = std::int64_t{2} << 30;  // bytes: all of a forward

struct Way {
  std::string name, reduction;  // none: nothing is recorded
  bool over_all = true, fused = true;
  std::int64_t defer = 0;
};

at::Device device() {
  return at::Device(torch::cuda::is_available() ? at::kCUDA : at::kCPU);
}

void finish() {
  if (torch::cuda::is_available()) torch::cuda::synchronize();
}

/// GPT-2 small in bfloat16, and a recorder of its 110 modules that compute.
struct Recorded {
  Recorded(const Way& way, std::int64_t batch, std::int64_t length) {
    if (torch::cuda::is_available() && way.fused) {
      tap::cuda::enable_fused_kernels();
    } else {
      tap::cuda::disable_fused_kernels();
    }
    torch::manual_seed(0);
    const bool small = !torch::cuda::is_available();
    model = zoo::GPT(
        zoo::GPTOptions(kVocabulary).context(1024).layers(small ? 1 : 12).heads(12).width(768).dropout(0));
    model->eval();
    model->to(device(), at::kBFloat16);
    tokens = torch::randint(kVocabulary, {batch, length}, torch::TensorOptions(at::kLong).device(device()));
    if (way.reduction.empty()) return;
    auto rows = tap::reductions::ParseOptions();
    if (way.over_all) {
      rows.over_all(true);
    } else {
      rows.over({0, 1});
    }
    recorder = tap::recorders::ForwardOutput(tap::recorders::RecorderOptions()
                                                 .reduction(tap::reductions::parse(way.reduction, rows))
                                                 .defer(way.defer));
    recorder.attach(model, tap::selectors::types<torch::nn::Linear, torch::nn::LayerNorm, torch::nn::GELU>());
  }

  void run() { model->forward(tokens); }

  zoo::GPT model{nullptr};
  at::Tensor tokens;
  tap::recorders::ForwardOutput recorder;
};

void eager(benchmark::State& state, const Way& way, std::int64_t batch, std::int64_t length) {
  const torch::NoGradGuard no_gradients;
  Recorded recorded(way, batch, length);
  for (int i = 0; i < 3; ++i) recorded.run();
  finish();
  for (auto _ : state) {
    recorded.run();
    finish();
  }
}

#ifdef TORCHTAP_BENCH_GRAPHS
void graph(benchmark::State& state, const Way& way, std::int64_t batch, std::int64_t length) {
  if (!torch::cuda::is_available()) return state.SkipWithError("there is no device");
  const torch::NoGradGuard no_gradients;
  Recorded recorded(way, batch, length);
  const auto stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  for (int i = 0; i < 3; ++i) recorded.run();
  finish();
  at::cuda::CUDAGraph captured;
  captured.capture_begin();
  recorded.run();
  captured.capture_end();
  for (int i = 0; i < 3; ++i) captured.replay();
  finish();
  for (auto _ : state) {
    captured.replay();
    finish();
  }
  if (!way.reduction.empty() && recorded.recorder[0].samples() < 6)
    state.SkipWithError("the replays were not recorded");
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const std::string series = "moments, min, max, count";
  std::vector<Way> ways{{"nothing", ""}};
  for (const auto& [name, reduction] :
       std::vector<std::pair<std::string, std::string>>{{"sum", "sum"},
                                                        {"mean", "mean"},
                                                        {"moments", "moments"},
                                                        {"min", "min"},
                                                        {"abs_max", "abs_max"},
                                                        {"norm", "norm"},
                                                        {"ema", "ema"},
                                                        {"count", "count"},
                                                        {"histogram", "histogram:64:-8:8"},
                                                        {"log_histogram", "log_histogram"},
                                                        {"series", series}}) {
    ways.push_back({name, reduction});
    ways.push_back({name + "_deferred", reduction, true, true, kDeferred});
  }
  ways.push_back({"series_rows", series, false});
  ways.push_back({"series_rows_deferred", series, false, true, kDeferred});
  ways.push_back({"series_unfused", series, true, false});
  for (const auto& [batch, length] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 1024}, {32, 128}}) {
    const std::string size = "/" + std::to_string(batch) + "x" + std::to_string(length);
    for (const Way& way : ways) {
      benchmark::RegisterBenchmark(("gpt/" + way.name + size).c_str(),
                                   [way = way, batch = batch, length = length](benchmark::State& state) {
                                     eager(state, way, batch, length);
                                   })
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
#ifdef TORCHTAP_BENCH_GRAPHS
      if (!way.fused) continue;
      benchmark::RegisterBenchmark(("gpt_graph/" + way.name + size).c_str(),
                                   [way = way, batch = batch, length = length](benchmark::State& state) {
                                     graph(state, way, batch, length);
                                   })
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
#endif
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
