// The reductions of the kernel in the table of checks.

#include "table.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

BOOST_AUTO_TEST_SUITE(table)

namespace {

at::Tensor central(const at::Tensor& rows, int power) {
  return (rows - rows.mean(0)).pow(power).mean(0);
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      make<Sum>("Sum", SumOptions(),
                [](const at::Tensor& x) {
                  return core::Results{{"value", x.sum(0)}};
                }),
      make<Mean>("Mean", MeanOptions(),
                 [](const at::Tensor& x) {
                   return core::Results{{"value", x.mean(0)}};
                 }),
      make<Moments>("Moments", MomentsOptions(),
                    [](const at::Tensor& x) {
                      core::Results state{{"mean", x.mean(0)}, {"variance", x.var(0, /*unbiased=*/true)}};
                      if (!x.is_complex()) {
                        state.set("skewness", central(x, 3) / central(x, 2).pow(1.5));
                        state.set("kurtosis", central(x, 4) / central(x, 2).square() - 3);
                      }
                      return state;
                    }),
      make<Moments>("Moments, order 2", MomentsOptions().order(2),
                    [](const at::Tensor& x) {
                      return core::Results{{"mean", x.mean(0)}, {"variance", x.var(0, /*unbiased=*/true)}};
                    }),
      make<Min>(
          "Min", MinOptions(),
          [](const at::Tensor& x) {
            return core::Results{{"value", x.amin(0)}};
          },
          false),
      make<Max>(
          "Max", MaxOptions(),
          [](const at::Tensor& x) {
            return core::Results{{"value", x.amax(0)}};
          },
          false),
      make<AbsMax>("AbsMax", AbsMaxOptions(),
                   [](const at::Tensor& x) {
                     return core::Results{{"value", x.abs().amax(0)}};
                   }),
      make<Norm>("Norm", NormOptions(),
                 [](const at::Tensor& x) {
                   return core::Results{{"value", x.abs().square().sum(0).sqrt()}};
                 }),
      make<Norm>("Norm 3", NormOptions().p(3),
                 [](const at::Tensor& x) {
                   return core::Results{{"value", x.abs().pow(3).sum(0).pow(1.0 / 3)}};
                 }),
      make<Norm>("Norm inf", NormOptions().p(std::numeric_limits<double>::infinity()),
                 [](const at::Tensor& x) {
                   return core::Results{{"value", x.abs().amax(0)}};
                 }),
      make<First>("First", FirstOptions(),
                  [](const at::Tensor& x) {
                    return core::Results{{"value", x[0]}};
                  }),
      make<Last>("Last", LastOptions(),
                 [](const at::Tensor& x) {
                   return core::Results{{"value", x[-1]}};
                 }),
      [] {
        auto one = make<Count>("Count", CountOptions(), [](const at::Tensor& x) {
          return core::Results{{"rows", at::scalar_tensor(x.size(0), at::kLong)},
                               {"elements", at::scalar_tensor(x.numel(), at::kLong)},
                               {"nan", x.isnan().sum()},
                               {"inf", x.isinf().sum()},
                               {"zeros", (x == 0).sum()}};
        });
        one.shaped = false;
        return one;
      }(),
      {"Series", [] { return core::make_sink(Series(Mean(), Max(), Mean())); },
       [] {
         return core::make_sink(Series(Mean(MeanOptions().over({0})), Max(MaxOptions().over({0})),
                                       Mean(MeanOptions().over({0}))));
       },
       [](const at::Tensor& x) {
         return core::Results{
             {"mean.value", x.mean(0)}, {"max.value", x.amax(0)}, {"mean_2.value", x.mean(0)}};
       },
       false},
      {"Over", [] { return core::make_sink(Sum()); }, [] { return core::make_sink(over({0}, Sum())); },
       [](const at::Tensor& x) {
         return core::Results{{"value", x.sum(0)}};
       }},
      {"Over a callable",
       [] { return core::make_sink([](const at::Tensor& a, const at::Tensor& x) { return a + x; }); },
       [] {
         return core::make_sink(over({0}, [](const at::Tensor& a, const at::Tensor& x) { return a + x; }));
       },
       [](const at::Tensor& x) {
         return core::Results{{"value", x.sum(0)}};
       }},
  };
  return all;
}

BOOST_AUTO_TEST_SUITE_END()
