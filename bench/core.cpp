/// Cost of a hook and of a recorder, compared with the bare call in the same run. `bench/run` prints the
/// ratios.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <memory>
#include <utility>
#include <vector>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/sum.hpp>

namespace tap = torchtap;

namespace {

// Does nothing, so that only the call itself is measured. Forwarded like an entry of a Sequential.
struct NothingImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input) { return input; }
};
TORCH_MODULE(Nothing);
struct TappedNothingImpl : NothingImpl {};
TORCHTAP_MODULE(TappedNothing);

void call(benchmark::State& state, torch::nn::AnyModule& module, const at::Tensor& input) {
  for (auto _ : state) benchmark::DoNotOptimize(module.forward(input));
}

void entry_bare(benchmark::State& state) {
  torch::nn::AnyModule module{Nothing()};
  call(state, module, at::ones({1, 100}));
}
BENCHMARK(entry_bare);

void entry_after_removal(benchmark::State& state) {
  torch::nn::AnyModule module{Nothing()};
  tap::hooks::attach(module, tap::hooks::Kind::forward_pre, [](tap::hooks::Event&) {}).remove();
  call(state, module, at::ones({1, 100}));
}
BENCHMARK(entry_after_removal);

void entry_empty_hook(benchmark::State& state) {
  torch::nn::AnyModule module{Nothing()};
  const auto handle = tap::hooks::attach(module, tap::hooks::Kind::forward_pre, [](tap::hooks::Event&) {});
  call(state, module, at::ones({1, 100}));
}
BENCHMARK(entry_empty_hook);

void entry_empty_output_hook(benchmark::State& state) {
  torch::nn::AnyModule module{Nothing()};
  const auto handle = tap::hooks::attach(module, tap::hooks::Kind::forward_output, [](tap::hooks::Event&) {});
  call(state, module, at::ones({1, 100}));
}
BENCHMARK(entry_empty_output_hook);

void entry_condition_false(benchmark::State& state) {
  torch::nn::AnyModule module{Nothing()};
  tap::recorders::ForwardPre recorder(tap::recorders::RecorderOptions().condition([] { return false; }));
  recorder.module(module);
  call(state, module, at::ones({1, 100}));
}
BENCHMARK(entry_condition_false);

void entry_sum(benchmark::State& state) {
  torch::nn::AnyModule module{Nothing()};
  tap::recorders::ForwardPre recorder(tap::reductions::Sum{});
  recorder.module(module);
  call(state, module, at::ones({1, 100}));
}
BENCHMARK(entry_sum);

void entry_output_sum(benchmark::State& state) {
  torch::nn::AnyModule module{Nothing()};
  tap::recorders::ForwardOutput recorder(tap::reductions::Sum{});
  recorder.module(module);
  call(state, module, at::ones({1, 100}));
}
BENCHMARK(entry_output_sum);

void entry_add(benchmark::State& state) {  // the same sum, written into the model by a user
  torch::nn::AnyModule module{Nothing()};
  const at::Tensor input = at::ones({1, 100});
  at::Tensor sum = at::zeros({1, 100});
  for (auto _ : state) {
    sum.add_(input);
    benchmark::DoNotOptimize(module.forward(input));
  }
}
BENCHMARK(entry_add);

void keep(benchmark::State& state, std::int64_t samples) {
  torch::nn::AnyModule module{Nothing()};
  tap::recorders::ForwardPre recorder;
  recorder.module(module);
  const at::Tensor input = at::ones({1, 100});
  std::int64_t calls = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(module.forward(input));
    if (++calls % samples == 0) recorder.reset();
  }
}

void entry_keep(benchmark::State& state) {
  keep(state, 10000);
}
BENCHMARK(entry_keep);

void entry_keep_few(benchmark::State& state) {
  keep(state, 100);
}
BENCHMARK(entry_keep_few);

// Samples of a layer of convolutions, which each have memory of their own.
void keep_64x64x28x28(benchmark::State& state) {
  torch::nn::AnyModule module{Nothing()};
  tap::recorders::ForwardPre recorder;
  recorder.module(module);
  const at::Tensor input = at::ones({64, 64, 28, 28});
  for (auto _ : state) {
    for (int i = 0; i < 8; ++i) module.forward(input);
    recorder.reset();
  }
}
BENCHMARK(keep_64x64x28x28)->Unit(benchmark::kMillisecond);

// All outputs of an AlexNet, of four batches at a time.
void keep_alexnet(benchmark::State& state) {
  const c10::NoGradGuard no_grad;
  namespace nn = torch::nn;
  const auto convolution = [](std::int64_t from, std::int64_t to, std::int64_t size, std::int64_t stride) {
    return nn::Conv2d(nn::Conv2dOptions(from, to, size).stride(stride).padding(size / 2));
  };
  const auto pool = [] { return nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2)); };
  nn::Sequential model(convolution(3, 64, 11, 4), nn::ReLU(), pool(), convolution(64, 192, 5, 1), nn::ReLU(),
                       pool(), convolution(192, 384, 3, 1), nn::ReLU(), convolution(384, 256, 3, 1),
                       nn::ReLU(), convolution(256, 256, 3, 1), nn::ReLU(), pool(), nn::Flatten(),
                       nn::Linear(9216, 4096), nn::ReLU(), nn::Linear(4096, 4096), nn::ReLU(),
                       nn::Linear(4096, 1000));
  tap::recorders::ForwardOutput recorder;
  recorder.attach(*model);
  const at::Tensor input = at::ones({8, 3, 224, 224});
  for (auto _ : state) {
    for (int i = 0; i < 4; ++i) benchmark::DoNotOptimize(model->forward(input));
    recorder.reset();
  }
}
BENCHMARK(keep_alexnet)->Unit(benchmark::kMillisecond);

void entry_clone(benchmark::State& state) {  // the same list, written into the model by a user
  torch::nn::AnyModule module{Nothing()};
  const at::Tensor input = at::ones({1, 100});
  std::vector<at::Tensor> samples;
  for (auto _ : state) {
    samples.push_back(input.clone());
    benchmark::DoNotOptimize(module.forward(input));
    if (samples.size() == 10000) samples.clear();
  }
}
BENCHMARK(entry_clone);

void direct_bare(benchmark::State& state) {
  Nothing module;
  const at::Tensor input = at::ones({1, 100});
  for (auto _ : state) benchmark::DoNotOptimize(module(input));
}
BENCHMARK(direct_bare);

void direct_tapped_no_hook(benchmark::State& state) {
  TappedNothing module;
  const at::Tensor input = at::ones({1, 100});
  for (auto _ : state) benchmark::DoNotOptimize(module(input));
}
BENCHMARK(direct_tapped_no_hook);

void direct_tapped_empty_hook(benchmark::State& state) {
  TappedNothing module;
  const auto handle = tap::hooks::attach(*module, tap::hooks::Kind::forward_pre, [](tap::hooks::Event&) {});
  const at::Tensor input = at::ones({1, 100});
  for (auto _ : state) benchmark::DoNotOptimize(module(input));
}
BENCHMARK(direct_tapped_empty_hook);

constexpr std::int64_t kLarge = 25'000'000;  // floats: 100 MB

void sum_100MB(benchmark::State& state) {
  const at::Tensor sample = at::ones({kLarge});
  tap::reductions::Sum sum;
  sum.update(sample);
  for (auto _ : state) sum.update(sample);
}
BENCHMARK(sum_100MB)->Unit(benchmark::kMillisecond);

void add_in_place_100MB(benchmark::State& state) {
  const at::Tensor sample = at::ones({kLarge});
  at::Tensor sum = sample.clone();
  for (auto _ : state) sum.add_(sample);
}
BENCHMARK(add_in_place_100MB)->Unit(benchmark::kMillisecond);

void add_100MB(benchmark::State& state) {
  const at::Tensor sample = at::ones({kLarge});
  at::Tensor sum = sample.clone();
  for (auto _ : state) sum = sum + sample;
}
BENCHMARK(add_100MB)->Unit(benchmark::kMillisecond);

/// The bytes of buffers that malloc knows nothing of.
double bytes_beside_malloc(const tap::recorders::ForwardPre& recorder) {
  constexpr std::size_t least = 4096;  // smaller ones are malloc's
  double bytes = 0;
  for (const auto& subrecorder : recorder) {
    const void* last = nullptr;
    for (const at::Tensor& sample : subrecorder.tensors()) {
      const c10::Storage& buffer = sample.storage();
      if (buffer.data_ptr().get() == std::exchange(last, buffer.data_ptr().get())) continue;
      if (buffer.nbytes() >= least) bytes += static_cast<double>(buffer.nbytes());
    }
  }
  return bytes;
}

// Memory held when every sample is kept, against the bytes of the data.
void keep_64x1000(benchmark::State& state) {
  std::vector<torch::nn::AnyModule> modules;
  for (int i = 0; i < 64; ++i) modules.emplace_back(Nothing());
  const at::Tensor input = at::ones({1, 100});
  double held = 0;
  for (auto _ : state) {
    tap::recorders::ForwardPre recorder;
    for (auto& module : modules) recorder.module(module);
    for (auto& module : modules) module.forward(input);  // allocates everything that is needed once
    recorder.reset();
    const auto before = mallinfo2();
    for (int i = 0; i < 1000; ++i) {
      for (auto& module : modules) module.forward(input);
    }
    state.PauseTiming();  // counting makes a tensor of each sample
    const auto after = mallinfo2();
    held = static_cast<double>(after.uordblks + after.hblkhd) -
           static_cast<double>(before.uordblks + before.hblkhd) + bytes_beside_malloc(recorder);
    state.ResumeTiming();
  }
  state.counters["bytes_held"] = held;
  state.counters["bytes_data"] = 64.0 * 1000.0 * static_cast<double>(input.nbytes());
}
BENCHMARK(keep_64x1000)->Unit(benchmark::kMillisecond);

/// A recorder of one module, which returns its input.
template <class Reduction>
struct Recorded {
  torch::nn::AnyModule module{Nothing()};
  tap::recorders::ForwardPre recorder;

  explicit Recorded(const Reduction& reduction) : recorder(reduction) { recorder.module(module); }
};

// Several threads feed one subrecorder at the same time, each with its own tensor.
template <class Reduction>
void one_subrecorder(benchmark::State& state, const Reduction& reduction, at::IntArrayRef sizes) {
  static std::unique_ptr<Recorded<Reduction>> recorded;
  if (state.thread_index() == 0) recorded = std::make_unique<Recorded<Reduction>>(reduction);
  // No thread enters a loop before all have arrived, and none leaves it before all are done.
  const at::Tensor input = at::ones(sizes);
  for (auto _ : state) benchmark::DoNotOptimize(recorded->module.forward(input));
  state.SetItemsProcessed(state.iterations());
  if (state.thread_index() == 0) recorded.reset();
}

// What these threads could do at best: each has a module and a recorder of its own.
template <class Reduction>
void own_subrecorder(benchmark::State& state, const Reduction& reduction, at::IntArrayRef sizes) {
  Recorded<Reduction> recorded(reduction);
  const at::Tensor input = at::ones(sizes);
  for (auto _ : state) benchmark::DoNotOptimize(recorded.module.forward(input));
  state.SetItemsProcessed(state.iterations());
}

const auto kMoments = tap::reductions::Moments(tap::reductions::MomentsOptions().over_all(true));

void shared_moments(benchmark::State& state) {
  one_subrecorder(state, kMoments, {64, 256});
}
void separate_moments(benchmark::State& state) {
  own_subrecorder(state, kMoments, {64, 256});
}
BENCHMARK(shared_moments)->Threads(1)->Threads(2)->Threads(8)->UseRealTime();
BENCHMARK(separate_moments)->Threads(2)->Threads(8)->UseRealTime();

void shared_sum(benchmark::State& state) {
  one_subrecorder(state, tap::reductions::Sum(), {1, 100});
}
void separate_sum(benchmark::State& state) {
  own_subrecorder(state, tap::reductions::Sum(), {1, 100});
}
BENCHMARK(shared_sum)->Threads(1)->Threads(2)->Threads(8)->UseRealTime();
BENCHMARK(separate_sum)->Threads(2)->Threads(8)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
