// The reductions of this part in the table of checks.

#include "tests/reductions/table.hpp"

#include <ATen/ATen.h>

BOOST_AUTO_TEST_SUITE(table)

namespace {

at::Tensor weights(std::int64_t n, double decay) {
  return at::pow(decay, at::arange(n - 1, -1, -1, at::kDouble)).unsqueeze(1);
}

/// The results of `Blocks` of which each sample is a row.
core::Results blocks_of(const at::Tensor& rows) {
  const at::Tensor x = rows.is_complex() ? at::view_as_real(rows).flatten(1) : rows;
  core::Results results = log_histogram_of(x.t());
  results.set("samples", at::ones({x.size(0)}, at::kLong));
  results.set("rows", at::full({x.size(0)}, rows.size(1), at::kLong));
  results.set("min", x.amin(1));
  results.set("max", x.amax(1));
  results.set("sum", x.sum(1));
  results.set("sum_squares", x.square().sum(1));
  return results;
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      make<EMA>("EMA", EMAOptions(0.9),
                [](const at::Tensor& x) {
                  const auto w = weights(x.size(0), 0.9);
                  return core::Results{{"value", (x * w).sum(0) / w.sum()}};
                }),
      make<Histogram>(
          "Histogram", HistogramOptions(7, -2, 3),
          [](const at::Tensor& x) {
            std::vector<at::Tensor> counts;
            for (const auto& column : x.unbind(1)) counts.push_back(at::histc(column, 7, -2, 3));
            return core::Results{{"counts", at::stack(counts)},
                                 {"underflow", (x < -2).sum(0)},
                                 {"overflow", (x > 3).sum(0)},
                                 {"nan", x.isnan().sum(0)},
                                 {"edges", at::linspace(-2, 3, 8, at::kDouble)}};
          },
          false),
      make<LogHistogram>("LogHistogram", LogHistogramOptions(), log_histogram_of, false),
      make<Quantiles>(
          "Quantiles", QuantilesOptions(),
          [](const at::Tensor& x) {
            const auto levels = at::tensor(QuantilesOptions().at());
            return core::Results{{"quantiles", at::quantile(x, levels, 0)}, {"levels", levels}};
          },
          false),
      make<Covariance>("Covariance", CovarianceOptions(),
                       [](const at::Tensor& x) {
                         core::Results state{{"mean", x.mean(0)},
                                             {"covariance", at::cov(x.t()).reshape({x.size(1), x.size(1)})}};
                         return state;
                       }),
      make<Gram>("Gram", GramOptions(),
                 [](const at::Tensor& x) {
                   return core::Results{{"value", at::matmul(x.t().conj(), x)}};
                 }),
      make<TopK>(
          "TopK", TopKOptions(3),
          [](const at::Tensor& x) {
            const auto [values, indices] = at::sort(x, /*stable=*/true, 0, /*descending=*/true);
            const auto k = std::min<std::int64_t>(3, x.size(0));
            return core::Results{{"values", values.narrow(0, 0, k)}, {"indices", indices.narrow(0, 0, k)}};
          },
          false),
      make<TopK>(
          "TopK smallest", TopKOptions(3).largest(false),
          [](const at::Tensor& x) {
            const auto [values, indices] = at::sort(x, /*stable=*/true, 0, /*descending=*/false);
            const auto k = std::min<std::int64_t>(3, x.size(0));
            return core::Results{{"values", values.narrow(0, 0, k)}, {"indices", indices.narrow(0, 0, k)}};
          },
          false),
      make<Reservoir>("Reservoir", ReservoirOptions(100),
                      [](const at::Tensor& x) {
                        return core::Results{{"samples", x}, {"indices", at::arange(x.size(0))}};
                      }),
      {"Blocks", [] { return core::make_sink(Blocks()); },
       [] { return core::make_sink(over({0}, Blocks())); }, blocks_of, true, true, false},
      {"Map", [] { return core::make_sink(map([](const at::Tensor& x) { return x.abs(); }, Sum())); },
       [] {
         return core::make_sink(
             map([](const at::Tensor& x) { return x.abs(); }, Sum(SumOptions().over({0}))));
       },
       [](const at::Tensor& x) {
         return core::Results{{"value", x.abs().sum(0)}};
       }},
      {"parsed", [] { return core::make_sink(parse("mean,max,mean")); },
       [] { return core::make_sink(parse("mean,max,mean", ParseOptions().over({0}))); },
       [](const at::Tensor& x) {
         return core::Results{
             {"mean.value", x.mean(0)}, {"max.value", x.amax(0)}, {"mean_2.value", x.mean(0)}};
       },
       false},
  };
  return all;
}

BOOST_AUTO_TEST_SUITE_END()
