/// What reductions of two tensors cost, beside the same without the second. Names are
/// groups/REDUCTION/SHAPE/CHOICE, where CHOICE is "whole", without; a number of keys, or "mask", beside the
/// whole sample; "pair", beside the bare product; for events, "context" and "module": who names the key.

#include <ATen/Functions.h>
#include <benchmark/benchmark.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/hooks/hooked.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>

namespace core = torchtap::core;
namespace tap = torchtap::reductions;

namespace {

constexpr std::size_t kSamples = 8;  // in turns, so that neither branches nor caches know the one that comes

std::vector<at::Tensor> made(const std::function<at::Tensor()>& make) {
  at::manual_seed(0);
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < kSamples; ++i) all.push_back(make());
  return all;
}

/// Feeds samples, each with its companion if there are any.
void feed(benchmark::State& state, tap::Any reduction, const std::string& name,
          const std::vector<at::Tensor>& samples, const std::vector<at::Tensor>& companions) {
  std::size_t i = 0;
  const auto step = [&] {
    i = (i + 1) % kSamples;
    if (companions.empty()) return reduction.update(samples[i]);
    const core::Context named(name, companions[i]);
    reduction.update(samples[i]);
  };
  for (std::size_t warm = 0; warm < 4 * kSamples; ++warm) step();
  for (auto _ : state) step();
}

void add(const std::string& name, const tap::Any& each, const std::vector<std::int64_t>& sizes) {
  std::string shape;
  for (const auto size : sizes) shape += (shape.empty() ? "" : "x") + std::to_string(size);
  const std::string prefix = "groups/" + name + "/" + shape + "/";
  const auto sample = [sizes] { return at::randn(sizes); };
  benchmark::RegisterBenchmark((prefix + "whole").c_str(), [each, sample](benchmark::State& state) {
    feed(state, each, "", made(sample), {});
  });
  for (const std::int64_t keys : {10, 100, 1000}) {
    const auto labels = [keys, rows = sizes[0]] { return at::randint(keys, {rows}, at::kLong); };
    benchmark::RegisterBenchmark((prefix + std::to_string(keys)).c_str(),
                                 [each, sample, labels](benchmark::State& state) {
                                   feed(state, tap::by("labels", each), "labels", made(sample), made(labels));
                                 });
  }
}

/// Tokens, some 60 % of which a mask takes.
void add_masked(const std::string& name, const tap::Any& each) {
  const auto sample = [] { return at::randn({8, 128, 768}); };
  const auto mask = [] { return at::rand({8, 128}).lt(0.6); };
  benchmark::RegisterBenchmark(("groups/" + name + "/8x128x768/whole").c_str(),
                               [each, sample](benchmark::State& state) {
                                 auto samples = made(sample);
                                 for (auto& one : samples) one = one.view({-1, 768});
                                 feed(state, each, "", samples, {});
                               });
  benchmark::RegisterBenchmark(("groups/" + name + "/8x128x768/mask").c_str(),
                               [each, sample, mask](benchmark::State& state) {
                                 feed(state, tap::where("mask", each), "mask", made(sample), made(mask));
                               });
}

/// The covariance of the features of two layers, beside the one product that it cannot do without.
void add_pair(std::int64_t features) {
  const auto sample = [features] { return at::randn({256, features}, at::kDouble); };
  const std::string prefix = "groups/CrossCovariance/256x" + std::to_string(features) + "/";
  benchmark::RegisterBenchmark((prefix + "whole").c_str(), [sample, features](benchmark::State& state) {
    const auto x = made(sample), y = made(sample);
    at::Tensor product = at::zeros({features, features}, at::kDouble);
    std::size_t i = 0;
    for (auto _ : state) {
      i = (i + 1) % kSamples;
      product.addmm_(x[i].t(), y[i]);
    }
  });
  benchmark::RegisterBenchmark((prefix + "pair").c_str(), [sample](benchmark::State& state) {
    feed(state, tap::CrossCovariance("other"), "other", made(sample), made(sample));
  });
}

struct SameImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCHTAP_MODULE(Same);

struct RoutedImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& key) {
    router(key);
    return block(x);
  }
  Same router = register_module("router", Same()), block = register_module("block", Same());
};
TORCHTAP_MODULE(Routed);

/// A forward of two modules whose second one is recorded: plain, by a key that the program names, and by one
/// that the first module gives.
void add_event() {
  using torchtap::recorders::RecorderOptions;
  const auto forward = [](benchmark::State& state, const RecorderOptions& options, bool named) {
    Routed model;
    torchtap::recorders::ForwardOutput recorder(options);
    recorder.attach(*model, torchtap::selectors::names("block"));
    const auto samples = made([] { return at::randn({1, 100}); });
    const auto keys = made([] { return at::randint(10, {1}, at::kLong); });
    const at::NoGradGuard without;
    std::size_t i = 0;
    const auto step = [&] {
      i = (i + 1) % kSamples;
      if (!named) return model(samples[i], keys[i]);
      const core::Context context("key", keys[i]);
      return model(samples[i], keys[i]);
    };
    for (std::size_t warm = 0; warm < 4 * kSamples; ++warm) step();
    for (auto _ : state) step();
  };
  const auto by_key = [] { return tap::by("key", tap::Sum()); };
  const std::string prefix = "groups/event,Sum/1x100/";
  benchmark::RegisterBenchmark((prefix + "whole").c_str(), [=](benchmark::State& state) {
    forward(state, RecorderOptions().reduction(tap::Sum()), false);
  });
  benchmark::RegisterBenchmark((prefix + "context").c_str(), [=](benchmark::State& state) {
    forward(state, RecorderOptions().reduction(by_key()), true);
  });
  benchmark::RegisterBenchmark((prefix + "module").c_str(), [=](benchmark::State& state) {
    forward(state, RecorderOptions().reduction(by_key()).with("key", torchtap::recorders::output("/router")),
            false);
  });
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tap;
  add("Moments", Moments(MomentsOptions().over({0, 2, 3})), {64, 16, 28, 28});
  add("Moments,Count",
      Series(Moments(MomentsOptions().over({0, 2, 3})), Count(CountOptions().over({0, 2, 3}))),
      {64, 16, 28, 28});
  add("Mean", Mean(MeanOptions().over({0})), {64, 512});
  add("Moments", Moments(MomentsOptions().over({0})), {64, 512});
  add("Moments:2", Moments(MomentsOptions().order(2).over({0})), {64, 512});
  add("Sum", Sum(), {1, 100});  // with one label for all, as for every sample of one row
  add_masked("Moments", Moments(MomentsOptions().over({0})));
  add_masked("Moments,all", Moments(MomentsOptions().over_all(true)));
  add_masked("Mean", Mean(MeanOptions().over({0})));
  for (const std::int64_t features : {512, 1024, 2048}) add_pair(features);
  add_event();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
