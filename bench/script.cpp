/// Cost of hooks on TorchScript modules. bench/python/resnet18.py writes the ResNet-18 to a file, whose path
/// is in TORCHTAP_BENCH_RESNET18.

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/script.h>

#include <cstdlib>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/walk.hpp>

namespace {

using torchtap::hooks::Handle;
using torchtap::hooks::Kind;

constexpr int kCalls = 100;

// What the interpreter needs for any operator: it takes a tensor and returns it. LibTorch must neither move
// nor remove it, as it must not with the operators of hooks.
const torch::jit::RegisterOperators empty_operator({torch::jit::Operator(
    "bench::empty(Tensor x) -> Tensor", [](torch::jit::Stack&) {}, c10::AliasAnalysisKind::CONSERVATIVE)});

/// Lets code call `bench.empty(x)`.
struct Names final : torch::jit::Resolver {
  torch::jit::SugaredValuePtr resolveValue(const std::string& name, torch::jit::GraphFunction& /*function*/,
                                           const torch::jit::SourceRange& /*where*/) override {
    return name == "bench" ? std::make_shared<torch::jit::BuiltinModule>(name) : nullptr;
  }
};

torch::jit::Module calls(const std::string& call = "self.leaf.forward(x)") {
  torch::jit::Module leaf("Leaf");
  leaf.define("def forward(self, x):\n    return x\n");
  torch::jit::Module root("Root");
  root.register_module("leaf", leaf);
  std::string body = "def forward(self, x):\n";
  for (int i = 0; i < kCalls; ++i) body += "    x = " + call + "\n";
  root.define(body + "    return x\n", std::make_shared<Names>());
  return root;
}

/// An empty hook on every module except the root.
std::vector<Handle> tap(const torch::jit::Module& model, Kind kind) {
  std::vector<Handle> handles;
  torchtap::hooks::DeferredCompile batch;
  for (const auto& module : torchtap::model::walk_modules(model)) {
    if (module.depth() > 0)
      handles.push_back(torchtap::hooks::attach(module, kind, [](torchtap::hooks::Event&) {}));
  }
  batch.commit();
  return handles;
}

void run(benchmark::State& state, torch::jit::Module& model, const at::Tensor& input, int warm) {
  at::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < warm; ++i) model.forward({input});
  for (auto _ : state) benchmark::DoNotOptimize(model.forward({input}));
}

void calls_bare(benchmark::State& state) {
  auto model = calls();
  run(state, model, torch::ones({1, 100}), 10);
}
BENCHMARK(calls_bare);

void calls_empty_operator(benchmark::State& state) {
  auto model = calls("bench.empty(x)");
  run(state, model, torch::ones({1, 100}), 10);
}
BENCHMARK(calls_empty_operator);

void calls_forward_pre(benchmark::State& state) {
  auto model = calls();
  const auto handles = tap(model, Kind::forward_pre);
  run(state, model, torch::ones({1, 100}), 10);
}
BENCHMARK(calls_forward_pre);

void calls_forward_output(benchmark::State& state) {
  auto model = calls();
  const auto handles = tap(model, Kind::forward_output);
  run(state, model, torch::ones({1, 100}), 10);
}
BENCHMARK(calls_forward_output);

void calls_detached(benchmark::State& state) {
  auto model = calls();
  tap(model, Kind::forward_output);
  run(state, model, torch::ones({1, 100}), 10);
}
BENCHMARK(calls_detached);

torch::jit::Module& resnet18(const char* which) {
  static std::map<std::string, torch::jit::Module> models;
  const auto found = models.find(which);
  if (found != models.end()) return found->second;
  const char* file = std::getenv("TORCHTAP_BENCH_RESNET18");
  auto model = torch::jit::load(file != nullptr ? file : "resnet18.pt");
  model.eval();
  return models[which] = model;
}

void resnet18_fresh(benchmark::State& state) {
  run(state, resnet18("fresh"), torch::ones({1, 3, 224, 224}), 3);
}
BENCHMARK(resnet18_fresh)->Unit(benchmark::kMillisecond);

void resnet18_detached(benchmark::State& state) {
  auto& model = resnet18("detached");
  {
    const auto handles = tap(model, Kind::forward_output);
    const torch::NoGradGuard no_grad;
    model.forward({torch::ones({1, 3, 224, 224})});
  }
  run(state, model, torch::ones({1, 3, 224, 224}), 3);
}
BENCHMARK(resnet18_detached)->Unit(benchmark::kMillisecond);

void resnet18_tapped(benchmark::State& state) {
  auto& model = resnet18("tapped");
  const auto handles = tap(model, Kind::forward_output);
  run(state, model, torch::ones({1, 3, 224, 224}), 3);
}
BENCHMARK(resnet18_tapped)->Unit(benchmark::kMillisecond);

void resnet18_attach_and_detach(benchmark::State& state) {
  auto& model = resnet18("attached");
  for (auto _ : state) tap(model, Kind::forward_output);
}
BENCHMARK(resnet18_attach_and_detach)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
