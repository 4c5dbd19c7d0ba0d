// Tests what an exponential moving average computes; table_test.cpp tests what all reductions share.

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include <torchtap/reductions/ema.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(ema_tests)

using namespace torchtap::reductions;
using torchtap_test::says;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor numbers(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

EMA fed(EMA ema, const at::Tensor& rows, std::int64_t batch) {
  for (const auto& part : rows.split(batch)) ema.update(part);
  return ema;
}

/// 40 x 4 with NaN and Inf sprinkled in; column 3 is never finite.
at::Tensor spoiled() {
  at::manual_seed(2);
  auto x = at::randn({40, 4}, at::kDouble) + at::arange(40, at::kDouble).unsqueeze(1) / 10;
  x[0][0] = kNaN;
  x[7][0] = kInf;
  x[39][1] = -kInf;
  x[12][1] = kNaN;
  x.select(1, 3).fill_(kNaN);
  return x;
}

}  // namespace

BOOST_AUTO_TEST_CASE(ema_begins_with_the_first_sample) {
  EMA ema(EMAOptions(0.99));
  ema.update(at::full({2}, 5.0F));
  BOOST_TEST(close(ema.value(), at::full({2}, 5.0F), 1e-6));
  EMA last(EMAOptions(0));
  for (const double x : {3, 8, 4}) last.update(numbers({x}));
  BOOST_TEST(last.value().item<double>() == 4.0);
  for (const double decay : {1.0, -0.1, kNaN}) BOOST_CHECK_THROW(EMA(EMAOptions(decay)), c10::ValueError);
  BOOST_CHECK_THROW(EMA(EMAOptions(0.9)).merge(EMA(EMAOptions(0.90000001))), c10::ValueError);
  BOOST_TEST(EMA(EMAOptions(0.9)).describe() == "EMA(0.9)");
  for (const std::int64_t rows : {1, 3, 1000}) {  // weights whose sum is nearly 0
    const EMA slow = fed(EMA(EMAOptions(1 - 1e-12).over_all(true)), at::ones({rows}, at::kDouble), rows);
    BOOST_TEST(slow.value().item<double>() == 1, boost::test_tools::tolerance(1e-14));
  }
}

BOOST_AUTO_TEST_CASE(ema_over_all_takes_one_element_after_the_other) {
  at::manual_seed(5);
  for (const std::int64_t numel : {1, 7, 8, 31, 32, 33, 100, 1000, 16384}) {
    for (const double decay : {0.0, 0.5, 0.9, 0.999}) {
      EMA ema(EMAOptions(decay).over_all(true));
      double sum = 0, weight = 1;
      for (int sample = 0; sample < 3; ++sample) {
        const auto x = at::randn({numel}) + 1;
        ema.update(x);
        for (std::int64_t i = 0; i < numel; ++i) {
          sum = sum * decay + static_cast<double>(x.data_ptr<float>()[i]) * (1 - decay);
          weight *= decay;
        }
      }
      const double want = sum / (1 - weight);
      BOOST_TEST(std::abs(ema.value().item<double>() - want) <= 1e-6 * (1 + std::abs(want)),
                 numel << ' ' << decay);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_is_omitted_does_not_age_the_others) {
  const auto options = EMAOptions(0.7).over({0}).non_finite(NonFinite::omit);
  const at::Tensor x = spoiled();
  for (const std::int64_t batch : {1, 7, 40}) {
    EMA one = fed(EMA(options), x.narrow(0, 0, 23), batch);
    one.merge(fed(EMA(options), x.narrow(0, 23, 17), batch));
    BOOST_TEST(one.count() == 40);
    BOOST_TEST(one.omitted().equal(at::tensor({2, 2, 0, 40}, at::kLong)));
    BOOST_TEST(one.results().at("omitted").equal(one.omitted()));
    for (std::int64_t i = 0; i < 3; ++i) {
      const at::Tensor column = x.select(1, i), finite = column.masked_select(column.isfinite());
      const EMA want = fed(EMA(EMAOptions(options).non_finite(NonFinite::raise)), finite, 40);
      BOOST_TEST(close(one.value()[i], want.value(), 1e-12));
    }
    BOOST_TEST(std::isnan(one.value()[3].item<double>()));
  }
  EMA each{EMAOptions(options).over({})};
  for (const auto& row : x.unbind(0)) each.update(row);
  BOOST_TEST(close(each.value(), fed(EMA(options), x, 40).value(), 1e-12));
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_is_an_error_if_asked_for) {
  EMA ema{EMAOptions().over({0}).non_finite(NonFinite::raise)};
  ema.update(at::ones({3, 4}));
  BOOST_CHECK_EXCEPTION(ema.update(spoiled()), c10::ValueError, says({"42 NaN", "2 Inf", "[40, 4]", "omit"}));
  BOOST_CHECK_THROW(ema.check(spoiled()), c10::ValueError);
  BOOST_TEST(ema.count() == 3);
  BOOST_TEST(close(ema.value(), at::ones({4}), 1e-7));
}

BOOST_AUTO_TEST_CASE(an_assigned_value_weighs_as_much_as_all_before) {
  const auto value = at::full({2}, 8.0, at::kDouble);
  EMA ema(EMAOptions(0.5));
  for (int i = 0; i < 4; ++i) ema.update(at::full({2}, 5.0 + i));
  ema.assign(value);
  BOOST_TEST(close(ema.value(), value, 1e-12));
  BOOST_TEST(ema.count() == 4);
  BOOST_CHECK_THROW(ema.assign(at::ones({3})), c10::ValueError);
  ema.update(at::full({2}, 2.0, at::kDouble));
  const double w = 0.5 + 0.25 + 0.125 + 0.0625;
  BOOST_TEST(ema.value()[0].item<double>() == (8 * w / 2 + 2 * 0.5) / (w / 2 + 0.5),
             boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_SUITE_END()
