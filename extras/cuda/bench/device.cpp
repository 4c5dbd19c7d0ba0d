/// Reductions and recorders on a device, compared with the ATen operations that a user would compose there,
/// and with the same model without recorders. Every measurement ends when the device is done.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <vector>

#include <torchtap/cuda/detail/driver.hpp>
#include <torchtap/cuda/fused_kernels.hpp>
#include <torchtap/torchtap.hpp>

#include "zoo/resnet.hpp"

namespace tap = torchtap;

namespace {

constexpr std::int64_t kFloats = 16 << 20;  // 64 MB

at::Device device() {
  return at::Device(torch::cuda::is_available() ? at::kCUDA : at::kCPU);
}

/// Kernels of torchtap::cuda, or ATen's operations.
void use_fused(bool fused) {
  if (fused && device().is_cuda()) return tap::cuda::enable_fused_kernels();
  tap::cuda::disable_fused_kernels();
}

void finish() {
  if (torch::cuda::is_available()) torch::cuda::synchronize();
}

/// Sixteen calls each, so that what the device needs to begin and end counts little.
template <class Function>
void repeat(benchmark::State& state, Function&& function) {
  constexpr int kCalls = 16;
  for (int i = 0; i < kCalls; ++i) function();
  finish();
  for (auto _ : state) {
    for (int i = 0; i < kCalls; ++i) function();
    finish();
  }
  state.SetItemsProcessed(state.iterations() * kCalls);
}

at::Tensor normal(at::IntArrayRef sizes) {
  at::manual_seed(0);
  return at::randn(sizes).to(device());
}

void update(benchmark::State& state, const std::string& text, at::IntArrayRef sizes, bool over_all,
            bool fused) {
  use_fused(fused);
  const at::Tensor x = normal(sizes);
  auto options = tap::reductions::ParseOptions();
  if (over_all) {
    options.over_all(true);
  } else {
    options.over({0});
  }
  auto reduction = tap::reductions::parse(text, options);
  if (!fused) return repeat(state, [&] { reduction.update(x); });
  torch::nn::Sequential model{torch::nn::Identity()};  // recorders add samples up on the device
  tap::recorders::ForwardOutput recorder(tap::recorders::RecorderOptions().reduction(reduction));
  recorder.attach(model, tap::selectors::names("0"));
  repeat(state, [&] { model->forward(x); });
}

/// A module that does nothing, with a hook that does nothing: what a recorder's sample costs without its
/// reduction.
void hook(benchmark::State& state) {
  const at::Tensor x = normal({32, 512});
  torch::nn::Sequential model{torch::nn::Identity()};
  const auto handle = tap::hooks::attach(tap::model::find(*model, "0"), tap::hooks::Kind::forward_output,
                                         [](tap::hooks::Event&) {});
  repeat(state, [&] { model->forward(x); });
}

void composed(benchmark::State& state, at::IntArrayRef sizes) {
  const at::Tensor x = normal(sizes);
  repeat(state, [&] {
    benchmark::DoNotOptimize(x.sum());
    benchmark::DoNotOptimize(at::var_mean(x, /*unbiased=*/true));
    benchmark::DoNotOptimize(x.min());
    benchmark::DoNotOptimize(x.max());
    benchmark::DoNotOptimize(x.isnan().any());
  });
}

void histc(benchmark::State& state, at::IntArrayRef sizes) {
  const at::Tensor x = normal(sizes);
  repeat(state, [&] { benchmark::DoNotOptimize(at::histc(x, 64, -4, 4)); });
}

void sum(benchmark::State& state, at::IntArrayRef sizes) {
  const at::Tensor x = normal(sizes);
  repeat(state, [&] { benchmark::DoNotOptimize(x.sum()); });
}

/// The least that a kernel can do with a sample: it reads the memory.
void read(benchmark::State& state, at::IntArrayRef sizes) {
  if (!torch::cuda::is_available()) return state.SkipWithError("no device");
  const char* const source = R"cuda(
extern "C" __global__ void read(const float4* x, long long size, float* out) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  float sum = 0;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += stride) {
    const float4 v = x[i];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 1e-30f) *out = sum;  // so that the compiler keeps the sum
}
)cuda";
  const at::Tensor x = normal(sizes);
  const auto& driver = tap::cuda::detail::Driver::instance();
  const c10::DeviceIndex at = x.device().index();
  void* const module = driver.load(source, {}, {"read"}, at);
  const void* from = x.data_ptr();
  float* out = x.data_ptr<float>();
  std::int64_t size = x.numel() / 4;
  void* arguments[] = {&from, &size, &out};
  constexpr unsigned kThreads = 256, kBlocks = 8;  // of a multiprocessor
  const auto most = static_cast<std::int64_t>(kBlocks) * driver.multiprocessors(at);
  const auto blocks = static_cast<unsigned>(std::min(most, (size + kThreads - 1) / kThreads));
  repeat(state, [&] { driver.launch(module, "read", {blocks, 1}, {kThreads, 1}, 0, at, arguments); });
}

/// A recorder of the rows that a mask chooses, three of four.
void masked(benchmark::State& state, const std::string& text, bool fused) {
  use_fused(fused);
  const at::Tensor x = normal({8, 1024, 768}), mask = torch::rand({8, 1024}).lt(0.75).to(device());
  torch::nn::Sequential model{torch::nn::Identity()};
  tap::recorders::ForwardOutput recorder(tap::recorders::RecorderOptions().reduction(tap::reductions::where(
      "mask", tap::reductions::parse(text, tap::reductions::ParseOptions().over({0})))));
  recorder.attach(model, tap::selectors::names("0"));
  const tap::core::Context named("mask", mask);
  repeat(state, [&] { model->forward(x); });
}

/// A training step of a ResNet-18, with nothing or with a recorder of every module's output.
void step(benchmark::State& state, const std::string& reduction, bool fused) {
  use_fused(fused);
  torch::manual_seed(0);
  torch::nn::Sequential model;
  {
    zoo::ResNet18 resnet(zoo::ResNet18Options().num_classes(10));
    for (const auto& child : {resnet->layer1, resnet->layer2, resnet->layer3, resnet->layer4}) {
      for (const auto& block : *child) model->push_back(block);
    }
  }
  model->to(device());
  const at::Tensor x = torch::randn({32, 64, 56, 56}).to(device());
  tap::recorders::ForwardOutput recorder(
      reduction.empty() ? tap::recorders::RecorderOptions()
                        : tap::recorders::RecorderOptions().reduction(tap::reductions::parse(
                              reduction, tap::reductions::ParseOptions().over_all(true))));
  if (!reduction.empty()) recorder.attach(model, tap::selectors::reachable());
  repeat(state, [&] {
    for (auto& parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
    model->forward(x).square().mean().backward();
  });
}

void add(const std::string& name, const std::string& reduction, bool fused = false) {
  const std::vector<std::int64_t> small{32, 512}, large{kFloats};
  benchmark::RegisterBenchmark((name + "/32x512").c_str(), [=](benchmark::State& state) {
    update(state, reduction, small, false, fused);
  });
  benchmark::RegisterBenchmark((name + "/64MB").c_str(), [=](benchmark::State& state) {
    update(state, reduction, large, true, fused);
  });
}

void add_step(const std::string& name, const std::string& reduction, bool fused = false) {
  benchmark::RegisterBenchmark(("resnet_step/" + name).c_str(),
                               [=](benchmark::State& state) { step(state, reduction, fused); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::int64_t> small{32, 512}, large{kFloats};
  for (const auto& [name, sizes] : {std::pair{"32x512", small}, std::pair{"64MB", large}}) {
    const std::string at = std::string("/") + name;
    const auto copy = sizes;
    benchmark::RegisterBenchmark(("aten_sum" + at).c_str(),
                                 [=](benchmark::State& state) { sum(state, copy); });
    benchmark::RegisterBenchmark(("read" + at).c_str(), [=](benchmark::State& state) { read(state, copy); });
    benchmark::RegisterBenchmark(("aten_composed" + at).c_str(),
                                 [=](benchmark::State& state) { composed(state, copy); });
    benchmark::RegisterBenchmark(("aten_histc" + at).c_str(),
                                 [=](benchmark::State& state) { histc(state, copy); });
  }
  benchmark::RegisterBenchmark("hook/32x512", hook);
  for (const char* reduction : {"quantiles", "top_k"}) add(reduction, reduction);
  const std::string series = "moments, min, max, count";
  for (const auto& [name, reduction] :
       std::vector<std::pair<std::string, std::string>>{{"sum", "sum"},
                                                        {"mean", "mean"},
                                                        {"min", "min"},
                                                        {"abs_max", "abs_max"},
                                                        {"norm", "norm"},
                                                        {"ema", "ema"},
                                                        {"moments", "moments"},
                                                        {"count", "count"},
                                                        {"log_histogram", "log_histogram"},
                                                        {"histogram", "histogram:64:-4:4"},
                                                        {"histogram_growing", "histogram:64"},
                                                        {"series", series}}) {
    add(name, reduction);
    add(name + "_fused", reduction, true);
  }
  for (const bool fused : {false, true}) {
    benchmark::RegisterBenchmark(fused ? "where_series_fused/8x1024x768" : "where_series/8x1024x768",
                                 [=](benchmark::State& state) { masked(state, series, fused); });
  }
  add_step("nothing", "");
  for (const auto& [name, reduction] : std::vector<std::pair<std::string, std::string>>{
           {"mean", "mean"}, {"moments", "moments"}, {"series", series}}) {
    add_step(name, reduction);
    add_step(name + "_fused", reduction, true);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
