/// What reductions by key and by mask cost, beside the same reduction of the whole sample. Names are
/// groups/REDUCTION/SHAPE/CHOICE, where CHOICE is "whole", a number of keys, or "mask".

#include <ATen/Functions.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/core/context.hpp>
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
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
