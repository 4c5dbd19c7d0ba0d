/// What one update with a small sample costs, beside `acc.add_(x)` and a copy of the sample: most recorders
/// see one row at a time. Names are small/REDUCTION/ROWS/DTYPE/SHAPE.

#include <ATen/Functions.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/reductions/reductions.hpp>

namespace core = torchtap::core;
namespace tap = torchtap::reductions;

namespace {

struct Type {
  const char* name;
  at::ScalarType type;
};
constexpr Type kTypes[] = {{"float32", at::kFloat},
                           {"float64", at::kDouble},
                           {"bfloat16", at::kBFloat16},
                           {"half", at::kHalf},
                           {"int64", at::kLong}};

at::Tensor sample(at::IntArrayRef sizes, at::ScalarType type) {
  at::manual_seed(0);
  const at::Tensor x = at::randn(sizes);
  return c10::isIntegralType(type, false) ? x.mul(100).to(type) : x.to(type);
}

/// Two samples in turn, so that neither branches nor caches know the one that comes.
void run(benchmark::State& state, const std::function<void(const at::Tensor&)>& update, const at::Tensor& x) {
  const at::Tensor samples[] = {x, x.flip(0).contiguous()};
  std::size_t i = 0;
  for (auto _ : state) update(samples[++i % 2]);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(x.nbytes()));
}

using Make = std::function<std::unique_ptr<core::Sink>()>;

void add(const std::string& name, const Make& make, at::IntArrayRef sizes, const Type& type) {
  std::string shape;
  for (const auto size : sizes) shape += (shape.empty() ? "" : "x") + std::to_string(size);
  const auto dims = sizes.vec();
  benchmark::RegisterBenchmark(("small/" + name + "/" + type.name + "/" + shape).c_str(),
                               [make, dims, type](benchmark::State& state) {
                                 const at::Tensor x = sample(dims, type.type);
                                 const auto sink = make();
                                 for (int i = 0; i < 16; ++i)
                                   sink->update(x);  // until lists of the best are full
                                 run(
                                     state, [&](const at::Tensor& next) { sink->update(next); }, x);
                               });
}

/// A reduction elementwise, over all elements and over rows.
template <class Options, class R>
void add_all(const std::string& name, Options options, const std::function<R(Options)>& make) {
  const std::vector<std::vector<std::int64_t>> shapes{{1, 100}, {1, 4096}, {32, 512}};
  for (const auto& shape : shapes) {
    for (const Type& type : kTypes) {
      if (type.type != at::kFloat && shape[1] != 100) continue;
      add(
          name + "/elementwise", [=] { return core::make_sink(make(options)); }, shape, type);
      add(
          name + "/over_all", [=] { return core::make_sink(make(Options(options).over_all(true))); }, shape,
          type);
      if (type.type == at::kFloat)
        add(
            name + "/over_rows", [=] { return core::make_sink(make(Options(options).over({0}))); }, shape,
            type);
    }
  }
}

template <class R, class Options>
void add_reduction(const std::string& name, Options options) {
  add_all<Options, R>(name, options, [](Options how) { return R(how); });
}

void add_baselines() {
  const std::vector<std::vector<std::int64_t>> shapes{{1, 100}, {1, 4096}, {32, 512}};
  for (const auto& shape : shapes) {
    for (const Type& type : kTypes) {
      if (type.type != at::kFloat && shape[1] != 100) continue;
      const std::string end =
          std::string("/") + type.name + "/" + std::to_string(shape[0]) + "x" + std::to_string(shape[1]);
      benchmark::RegisterBenchmark(("small/add_/-" + end).c_str(), [shape, type](benchmark::State& state) {
        const at::Tensor x = sample(shape, type.type);
        at::Tensor acc = at::zeros_like(x);
        run(
            state, [&](const at::Tensor& next) { acc.add_(next); }, x);
      });
      benchmark::RegisterBenchmark(("small/clone/-" + end).c_str(), [shape, type](benchmark::State& state) {
        run(
            state, [](const at::Tensor& next) { benchmark::DoNotOptimize(next.clone()); },
            sample(shape, type.type));
      });
    }
  }
}

void add_series() {
  const auto make = [] {
    return core::make_sink(tap::Series(
        tap::Moments(tap::MomentsOptions().over_all(true)), tap::Min(tap::MinOptions().over_all(true)),
        tap::Max(tap::MaxOptions().over_all(true)), tap::Count(tap::CountOptions().over_all(true))));
  };
  add("Series of four/over_all", make, {1, 100}, kTypes[0]);
  add("Series of four/over_all", make, {1, 4096}, kTypes[0]);
  add("Series of four/over_all", make, {32, 512}, kTypes[0]);
}

/// 512 rows of 4096 features, one by one and at once.
template <class R, class Options>
void small_rows_covariance(const std::string& name) {
  const auto add_rows = [&](const char* how, std::int64_t at_once) {
    benchmark::RegisterBenchmark(("small/" + name + "/512 rows " + how + "/float32/512x4096").c_str(),
                                 [at_once](benchmark::State& state) {
                                   const auto rows = sample({512, 4096}, at::kFloat).split(at_once);
                                   R reduction(Options().over({0}));
                                   for (const auto& row : rows) reduction.update(row);
                                   for (auto _ : state) {
                                     for (const auto& row : rows) reduction.update(row);
                                   }
                                 })
        ->Unit(benchmark::kMillisecond);
  };
  add_rows("at once", 512);
  add_rows("one by one", 1);
}

}  // namespace

int main(int argc, char** argv) {
  add_baselines();
  add_reduction<tap::Sum>("Sum", tap::SumOptions());
  add_reduction<tap::Mean>("Mean", tap::MeanOptions());
  add_reduction<tap::Min>("Min", tap::MinOptions());
  add_reduction<tap::AbsMax>("AbsMax", tap::AbsMaxOptions());
  add_reduction<tap::Norm>("Norm", tap::NormOptions());
  add_reduction<tap::EMA>("EMA", tap::EMAOptions());
  add_reduction<tap::Count>("Count", tap::CountOptions());
  add_reduction<tap::First>("First", tap::FirstOptions());
  add_reduction<tap::Last>("Last", tap::LastOptions());
  add_reduction<tap::Moments>("Moments", tap::MomentsOptions());
  add_reduction<tap::Moments>("Moments(order=2)", tap::MomentsOptions().order(2));
  add_reduction<tap::Histogram>("Histogram", tap::HistogramOptions(64, -4, 4));
  add_reduction<tap::Histogram>("Histogram, growing", tap::HistogramOptions(64));
  add_reduction<tap::Quantiles>("Quantiles", tap::QuantilesOptions());
  add_reduction<tap::TopK>("TopK", tap::TopKOptions(8));
  add_reduction<tap::Reservoir>("Reservoir", tap::ReservoirOptions(8));
  add(
      "Covariance/elementwise", [] { return core::make_sink(tap::Covariance()); }, {1, 100}, kTypes[0]);
  add(
      "Gram/elementwise", [] { return core::make_sink(tap::Gram()); }, {1, 100}, kTypes[0]);
  small_rows_covariance<tap::Covariance, tap::CovarianceOptions>("Covariance");
  small_rows_covariance<tap::Gram, tap::GramOptions>("Gram");
  add_series();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
