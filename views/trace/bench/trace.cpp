/// Cost of a scope around operations and of the log of a pass, compared with the same without. `bench/run`
/// prints the ratios.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <benchmark/benchmark.h>

#include <optional>
#include <vector>

#include <torchtap/base/reused_memory.hpp>
#include <torchtap/operations/operations.hpp>
#include <torchtap/views/frames/bulk_copy.hpp>
#include <torchtap/views/trace/trace.hpp>

#include "zoo/resnet.hpp"

namespace tap = torchtap;
namespace trace = tap::views::trace;

namespace {

/// An operation on one element: what it costs is what surrounds it.
void operation(benchmark::State& state,
               const std::function<void(benchmark::State&, const at::Tensor&)>& body) {
  at::set_num_threads(1);
  const c10::NoGradGuard no_grad;
  body(state, at::ones({1}));
}

void operation_bare(benchmark::State& state) {
  operation(state, [](benchmark::State& loop, const at::Tensor& x) {
    for (auto _ : loop) benchmark::DoNotOptimize(x + x);
  });
}
BENCHMARK(operation_bare);

/// The fallback is registered, and no scope is open.
void operation_after_scope(benchmark::State& state) {
  {
    const tap::operations::Scope scope([](tap::operations::Event&) {});
  }
  operation_bare(state);
}
BENCHMARK(operation_after_scope);

void operation_empty_scope(benchmark::State& state) {
  operation(state, [](benchmark::State& loop, const at::Tensor& x) {
    const tap::operations::Scope scope([](tap::operations::Event&) {});
    for (auto _ : loop) benchmark::DoNotOptimize(x + x);
  });
}
BENCHMARK(operation_empty_scope);

/// Logs of a thousand operations each; making the graph of a log is not part of it.
void operation_logged(benchmark::State& state, const trace::TraceOptions& options) {
  operation(state, [&](benchmark::State& loop, const at::Tensor& x) {
    std::optional<trace::Tracer> tracer;
    std::int64_t operations = 0;
    for (auto _ : loop) {
      if (operations++ % 1000 == 0) {
        loop.PauseTiming();
        tracer.emplace(options);
        tracer->start();
        loop.ResumeTiming();
      }
      benchmark::DoNotOptimize(x + x);
    }
  });
}
BENCHMARK_CAPTURE(operation_logged, none, trace::TraceOptions());
BENCHMARK_CAPTURE(operation_logged, all, trace::TraceOptions().save(trace::Save::all));

/// One forward of a ResNet-18, 8 images of 224×224.
void resnet18(benchmark::State& state, const std::optional<trace::TraceOptions>& options, bool finish) {
  at::set_num_threads(1);
  const c10::NoGradGuard no_grad;
  static zoo::ResNet18 net = [] {
    zoo::ResNet18 made(zoo::ResNet18Options().num_classes(1000));
    made->eval();
    return made;
  }();
  const auto images = at::ones({8, 3, 224, 224});
  for (auto _ : state) {
    if (!options) {
      benchmark::DoNotOptimize(net(images));
      continue;
    }
    trace::Tracer tracer(*net, *options);
    tracer.input(images);
    tracer.run([&] { tracer.output(net(images)); });
    if (finish) benchmark::DoNotOptimize(tracer.finish());
  }
}
BENCHMARK_CAPTURE(resnet18, bare, std::nullopt, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(resnet18, none, trace::TraceOptions(), true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(resnet18, all, trace::TraceOptions().save(trace::Save::all), true)
    ->Unit(benchmark::kMillisecond);

/// About what keeping the tensors of a forward takes where the program uses their memory again: copies of as
/// many bytes, of a tensor that lies in the caches, to memory that is there.
void resnet18_copies(benchmark::State& state) {
  constexpr std::int64_t kTensors = 42, kElements = 8 * 64 * 56 * 56;  // 270 MB
  const at::Tensor made = at::ones({kElements});
  std::vector<c10::Storage> kept;
  for (std::int64_t i = 0; i < kTensors; ++i) kept.push_back(tap::base::reused_storage(made.nbytes()));
  for (auto _ : state) {
    for (const c10::Storage& to : kept)
      tap::views::frames::bulk_copy(to.data_ptr().get(), made.data_ptr(), made.nbytes());
  }
  state.SetBytesProcessed(state.iterations() * kTensors * static_cast<std::int64_t>(made.nbytes()));
}
BENCHMARK(resnet18_copies)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
