// Tests the results and guarantees of LogHistogram against LibTorch's operations on the bits of its samples.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(log_histogram)

using namespace torchtap;
using namespace torchtap::reductions;
namespace bdata = boost::unit_test::data;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor numbers(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

LogHistogram whole(std::int64_t mantissa_bits = 3) {
  return LogHistogram(LogHistogramOptions(mantissa_bits).over_all(true));
}

template <class R>
R fed(R reduction, const at::Tensor& rows, std::int64_t batch) {
  for (const auto& part : rows.split(batch)) reduction.update(part);
  return reduction;
}

void check_same(const core::Results& got, const core::Results& want) {
  BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
  for (const auto& [name, tensor] : want) {
    BOOST_TEST_CONTEXT(name) BOOST_TEST(got.at(name).equal(tensor));
  }
}

/// The results of all elements of a float32 tensor, from its bits.
core::Results from_bits(const at::Tensor& sample, int mantissa_bits = 3) {
  const at::Tensor x = sample.to(at::kFloat).reshape({-1}), ordinary = x.isfinite().logical_and(x != 0);
  const at::Tensor bits = x.index({ordinary}).contiguous().view(at::kInt).to(at::kLong);
  const at::Tensor upper = at::bitwise_right_shift(bits, 23 - mantissa_bits);  // keeps the sign
  const at::Tensor sign = (upper < 0).to(at::kLong) * -2 + 1;
  const at::Tensor magnitude = at::bitwise_and(upper, (256 << mantissa_bits) - 1);
  // -1, -2 ... for negative numbers, 0, 1 ... for positive ones: in the order of the numbers.
  const auto [key, inverse, count] =
      at::_unique2(at::where(sign < 0, -1 - magnitude, magnitude), true, false, /*return_counts=*/true);
  const auto end = [&](const at::Tensor& bin) {  // 2^128 is beyond float32
    const at::Tensor ends = at::bitwise_left_shift(bin, 23 - mantissa_bits).to(at::kInt).view(at::kFloat);
    return ends.to(at::kDouble).masked_fill(bin == 255 << mantissa_bits, std::ldexp(1.0, 128));
  };
  const at::Tensor negative = key < 0, near = at::where(negative, -1 - key, key);
  const auto number = [](const at::Tensor& which) { return which.sum(); };
  return {{"counts", count},
          {"low", at::where(negative, -end(near + 1), end(near)) + 0.0},
          {"high", at::where(negative, -end(near), end(near + 1)) + 0.0},
          {"zeros", number(x == 0)},
          {"negative_infinity", number(x == -kInf)},
          {"positive_infinity", number(x == kInf)},
          {"nan", number(x.isnan())}};
}

/// Ordinary and special values of a type.
at::Tensor mixed(at::ScalarType type, std::int64_t n) {
  const at::Tensor special = numbers({kNaN, kInf, kInf, -kInf, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 1e-39});
  const at::Tensor all = at::cat({at::randn({n}, at::kDouble), at::zeros({n / 4}, at::kDouble), special,
                                  at::randn({n / 4}, at::kDouble) * 1e-5})
                             .to(at::kFloat);
  return all.index({at::randperm(all.numel())}).to(type);
}

/// The histogram of slice `i` of results along their only kept dimension, without bins that it does not use.
core::Results slice(const core::Results& results, std::int64_t i) {
  const at::Tensor used = results.at("counts")[i] != 0;
  core::Results one{{"counts", results.at("counts")[i].index({used})},
                    {"low", results.at("low").index({used})},
                    {"high", results.at("high").index({used})}};
  for (const char* const name : {"zeros", "negative_infinity", "positive_infinity", "nan"})
    one.set(name, results.at(name)[i]);
  return one;
}

struct Threads {
  explicit Threads(int n) { at::set_num_threads(n); }
  ~Threads() { at::set_num_threads(before); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  int before = at::get_num_threads();
};

}  // namespace

BOOST_AUTO_TEST_CASE(bins_are_the_upper_bits) {
  at::manual_seed(1);
  for (const int mantissa_bits : {0, 1, 3, 7}) {
    for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
      for (const std::int64_t n : {3, 100, 4000, 300000}) {
        const at::Tensor x = mixed(type, n);
        auto histogram = whole(mantissa_bits);
        histogram.update(x);
        BOOST_TEST(histogram.count() == x.numel());
        check_same(histogram.results(), from_bits(x, mantissa_bits));
        histogram.update(x);  // the second of its kind
        const auto twice = from_bits(at::cat({x, x}), mantissa_bits);
        check_same(histogram.results(), twice);
        BOOST_TEST(histogram.counts().equal(twice.at("counts")));
        BOOST_TEST(histogram.low().equal(twice.at("low")));
        BOOST_TEST(histogram.high().equal(twice.at("high")));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(integers) {
  for (const auto type : {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    for (const std::int64_t n : {50, 100000}) {
      const at::Tensor x = at::randint(-120, 120, {n}, at::kLong).to(type);
      auto histogram = whole();
      histogram.update(x);
      histogram.update(x.reshape({-1, 2}));
      check_same(histogram.results(), from_bits(at::cat({x, x}).to(at::kFloat)));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_float64_lies_between_the_ends_of_its_bin) {
  // Just below an end, which it would be rounded to as a float32.
  auto histogram = whole();
  const double below = std::nextafter(1.5, 0.0);
  histogram.update(numbers({below, -below, 1.5}));
  BOOST_TEST(histogram.low().equal(numbers({-1.5, 1.375, 1.5})));
  BOOST_TEST(histogram.high().equal(numbers({-1.375, 1.5, 1.625})));
  // Beyond float32 it stays finite, and not zero.
  auto extreme = whole();
  extreme.update(numbers({1e300, -1e300, 1e-300, -5e-324, kInf, -kInf, 3.4028235677973366e38}));
  const double large = std::ldexp(1.0, 128), wide = std::ldexp(15.0, 124), tiny = std::ldexp(1.0, -129);
  BOOST_TEST(extreme.low().equal(numbers({-large, -tiny, 0.0, wide})));
  BOOST_TEST(extreme.high().equal(numbers({-wide, 0.0, tiny, large})));
  BOOST_TEST(extreme.counts().equal(at::tensor({1, 1, 1, 2}, at::kLong)));
  BOOST_TEST(extreme.zeros().item<std::int64_t>() == 0);
  BOOST_TEST(extreme.positive_infinity().item<std::int64_t>() == 1);
  BOOST_TEST(extreme.negative_infinity().item<std::int64_t>() == 1);
}

BOOST_AUTO_TEST_CASE(only_special_values) {
  auto histogram = whole();
  histogram.update(numbers({kNaN, kNaN}));
  BOOST_TEST((histogram.counts().sizes() == at::IntArrayRef{0}));
  BOOST_TEST((histogram.low().sizes() == at::IntArrayRef{0}));
  BOOST_TEST(std::isnan(histogram.quantile(0.5).item<double>()));
  BOOST_TEST(histogram.nan().item<std::int64_t>() == 2);
  histogram.update(numbers({0.0, -0.0, kInf, -kInf}));
  BOOST_TEST(histogram.zeros().item<std::int64_t>() == 2);
  BOOST_TEST(histogram.quantile(0.5).item<double>() == 0.0);
  BOOST_TEST(histogram.quantile(0.0).item<double>() == -kInf);
  BOOST_TEST(histogram.quantile(1.0).item<double>() == kInf);
}

BOOST_AUTO_TEST_CASE(senseless_options_are_refused) {
  BOOST_CHECK_THROW(LogHistogram(LogHistogramOptions(8)), c10::ValueError);
  BOOST_CHECK_THROW(LogHistogram(LogHistogramOptions().mantissa_bits(-1)), c10::ValueError);
  LogHistogram one;
  BOOST_TEST(one.describe() == "LogHistogram(3)");
  BOOST_TEST(LogHistogram(LogHistogramOptions(5).over({0})).describe() == "LogHistogram(5, over=[0])");
  BOOST_CHECK_THROW(one.merge(LogHistogram(LogHistogramOptions(4))), c10::ValueError);
  BOOST_CHECK_THROW(one.counts(), c10::ValueError);
  BOOST_CHECK_THROW(one.quantile(0.5), c10::ValueError);
  BOOST_TEST(one.results().empty());
  one.update(at::ones({2}));
  BOOST_CHECK_THROW(one.quantile(1.5), c10::ValueError);
  BOOST_CHECK_THROW(one.quantiles({0.5, kNaN}), c10::ValueError);
}

BOOST_DATA_TEST_CASE(every_way_of_folding_is_one_histogram_for_each_slice, bdata::make({false, true}),
                     large) {
  at::manual_seed(2);
  // Moments of 10^-3 ... 10^3 in the slices, so that they use different octaves.
  const std::int64_t n = large ? 37 : 3;
  const at::Tensor scale = at::pow(10.0, at::arange(-3, 4, at::kFloat));
  const at::Tensor base = at::randn({n, 7, 23, 6}).relu() * scale.reshape({1, 7, 1, 1});
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt}) {
    const at::Tensor x = base.to(type);
    for (const auto& [name, sample, over, kept] :
         {std::tuple{"channels", x, std::vector<std::int64_t>{0, 2, 3}, std::int64_t{1}},
          {"channels last", x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}),
           std::vector<std::int64_t>{0, 2, 3}, std::int64_t{1}},
          {"features", x.permute({0, 2, 3, 1}).contiguous(), std::vector<std::int64_t>{0, 1, 2},
           std::int64_t{3}},
          {"last", x, std::vector<std::int64_t>{0, 1, 2}, std::int64_t{3}},
          {"first", x, std::vector<std::int64_t>{1, 2, 3}, std::int64_t{0}},
          {"every second", x.slice(2, 0, 23, 2), std::vector<std::int64_t>{0, 2, 3}, std::int64_t{1}}}) {
      BOOST_TEST_CONTEXT(name << ", " << sample.toString()) {
        LogHistogram histogram(LogHistogramOptions().over(over));
        histogram.update(sample);
        histogram.update(sample);
        BOOST_TEST(histogram.count() == 2 * sample.numel() / sample.size(kept));
        const auto results = histogram.results();
        for (std::int64_t i = 0; i < sample.size(kept); ++i) {
          const at::Tensor part = sample.select(kept, i);
          check_same(slice(results, i), from_bits(at::cat({part, part}).to(at::kFloat)));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(two_kept_dimensions_in_any_order_of_memory) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({4, 3, 5, 2});
  for (const auto& over : std::vector<std::vector<std::int64_t>>{{0}, {1}, {0, 2}, {1, 3}, {3}, {2}}) {
    std::vector<at::Tensor> all{x, x.permute({3, 2, 1, 0}).contiguous().permute({3, 2, 1, 0}),
                                x.permute({1, 0, 3, 2}).contiguous().permute({1, 0, 3, 2})};
    const auto histogram = [&](const at::Tensor& sample) {
      LogHistogram one(LogHistogramOptions().over(over));
      one.update(sample);
      one.update(sample * 8);
      return one.results();
    };
    const auto want = histogram(x);
    for (const auto& sample : all) check_same(histogram(sample), want);
    // Rows apart.
    at::Tensor rows = x;
    std::vector<std::int64_t> order(over);
    for (std::int64_t i = 0; i < 4; ++i) {
      if (std::find(over.begin(), over.end(), i) == over.end()) order.push_back(i);
    }
    rows = x.permute(order).flatten(0, static_cast<std::int64_t>(over.size()) - 1);
    LogHistogram single;
    for (const auto& row : rows.unbind(0)) single.update(row);
    for (const auto& row : rows.unbind(0)) single.update(row * 8);
    check_same(single.results(), want);
  }
}

BOOST_AUTO_TEST_CASE(new_octaves_come_one_by_one) {
  LogHistogram histogram;
  std::vector<at::Tensor> columns;
  at::manual_seed(4);
  at::Tensor all = at::empty({0, 5});
  for (int i = 0; i < 260; ++i) {
    const at::Tensor row = at::randn({5}) * std::ldexp(1.0, (i * 37) % 260 - 140);
    histogram.update(row);
    all = at::cat({all, row.unsqueeze(0)});
  }
  const auto results = histogram.results();
  for (std::int64_t i = 0; i < 5; ++i)
    check_same(slice(results, i), from_bits(all.select(1, i).contiguous()));
}

BOOST_AUTO_TEST_CASE(order_splits_and_merges_do_not_matter) {
  at::manual_seed(5);
  const at::Tensor rows = mixed(at::kFloat, 3000).slice(0, 0, 3500).reshape({700, 5}) *
                          at::pow(2.0, at::randint(-60, 60, {700, 1}, at::kFloat));
  for (const bool all : {false, true}) {
    const auto make = [&] { return all ? whole() : LogHistogram(LogHistogramOptions().over({0})); };
    const auto want = fed(make(), rows, 700).results();
    for (const std::int64_t batch : {1, 7, 64, 333}) {
      check_same(fed(make(), rows, batch).results(), want);
      check_same(fed(make(), rows.index({at::randperm(700)}), batch).results(), want);
      auto left = make(), right = make();
      const auto parts = rows.split(batch);
      for (std::size_t i = 0; i < parts.size(); ++i) (i % 3 == 0 ? left : right).update(parts[i]);
      auto other = right;
      other.merge(left);
      left.merge(right);
      check_same(left.results(), want);
      check_same(other.results(), want);
      BOOST_TEST(left.count() == other.count());
    }
  }
}

#ifndef __SANITIZE_THREAD__  // to which OpenMP's barriers are invisible
BOOST_AUTO_TEST_CASE(the_number_of_threads_does_not_matter) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({32, 16, 70, 70}).relu_();
  const auto run = [&](int threads, const at::Tensor& sample, const std::vector<std::int64_t>& over) {
    const Threads set(threads);
    LogHistogramOptions options;
    MomentsOptions moments;
    if (over.empty()) {
      options.over_all(true);
      moments.over_all(true);
    } else {
      options.over(over);
      moments.over(over);
    }
    LogHistogram one(options);
    one.update(sample);
    Series together{Moments(moments), LogHistogram(options)};
    together.update(sample);
    check_same(together.get<LogHistogram>().results(), one.results());
    Moments alone(moments);
    alone.update(sample);
    check_same(together.get<Moments>().results(), alone.results());
    return one.results();
  };
  for (const auto& over : std::vector<std::vector<std::int64_t>>{{}, {0, 2, 3}, {0}, {1}, {0, 1}, {2, 3}}) {
    const at::Tensor sample = over.size() == 1 ? x.narrow(2, 0, 5).contiguous() : x;  // many kept elements
    const auto want = run(1, sample, over);
    for (const int threads : {2, 5}) check_same(run(threads, sample, over), want);
    if (over.empty()) check_same(want, from_bits(x));
  }
  const auto want = run(1, (x * 1000).to(at::kInt), {});
  check_same(run(4, (x * 1000).to(at::kInt), {}), want);
  check_same(want, from_bits((x * 1000).to(at::kInt)));
}
#endif

BOOST_AUTO_TEST_CASE(one_pass_with_others) {
  at::manual_seed(7);
  for (const std::int64_t n : {100, 100000}) {
    const at::Tensor x = at::randn({n});
    Series series(whole(), Moments(MomentsOptions().over_all(true)), whole(5),
                  Histogram(HistogramOptions(64, -4, 4).over_all(true)), Count(), whole());
    series.update(x);
    series.update(x);
    const at::Tensor twice = at::cat({x, x});
    check_same(series.get<0>().results(), from_bits(twice));
    check_same(series.get<2>().results(), from_bits(twice, 5));
    check_same(series.get<5>().results(), from_bits(twice));
    BOOST_TEST(series.get<3>().counts().equal(at::histc(twice, 64, -4, 4).to(at::kLong)));
    BOOST_TEST(close(series.get<1>().mean(), x.to(at::kDouble).mean(), 1e-6));
  }
}

BOOST_DATA_TEST_CASE(quantiles_are_within_the_bound, bdata::xrange(0, 8), mantissa_bits) {
  at::manual_seed(8);
  const double bound = std::ldexp(1.0, -(mantissa_bits + 1));
  const at::Tensor levels = at::cat({at::linspace(0, 1, 101, at::kDouble), numbers({0.001, 0.999, 0.9999})});
  const std::vector<double> all(levels.data_ptr<double>(), levels.data_ptr<double>() + levels.numel());
  for (const std::int64_t n : {1, 2, 11, 1000, 20001}) {
    const at::Tensor plain = at::randn({n, 3}, at::kDouble);
    for (const at::Tensor& x : {plain, plain.relu(), plain * 1e-5, plain.exp(), -plain.exp(), plain.pow(5)}) {
      LogHistogram histogram(LogHistogramOptions(mantissa_bits).over({0}));
      histogram.update(x);
      const at::Tensor got = histogram.quantiles(all);
      const at::Tensor want = at::quantile(x, levels, 0);
      // The larger of the two neighbours between which it is interpolated.
      const at::Tensor sorted = std::get<0>(x.sort(0));
      const at::Tensor position = levels * static_cast<double>(n - 1);
      const at::Tensor larger = at::maximum(sorted.index({position.floor().to(at::kLong)}).abs(),
                                            sorted.index({position.ceil().to(at::kLong)}).abs());
      BOOST_TEST(((got - want).abs() <= larger * bound * (1 + 1e-12)).all().item<bool>(),
                 n << " rows: " << ((got - want).abs() / larger).max().item<double>() << " > " << bound);
      BOOST_TEST((want != 0).logical_or(got == 0).all().item<bool>());
      const at::Tensor same =
          sorted.index({position.floor().to(at::kLong)}) * sorted.index({position.ceil().to(at::kLong)}) > 0;
      BOOST_TEST(((got - want).abs() <= want.abs() * bound * (1 + 1e-12))
                     .logical_or(same.logical_not())
                     .all()
                     .item<bool>());
      BOOST_TEST(histogram.quantile(0.25).equal(got[25]));
    }
  }
}

BOOST_AUTO_TEST_CASE(saved_states_are_small_and_go_on) {
  at::manual_seed(9);
  for (const bool all : {false, true}) {
    const auto bytes = [](LogHistogram& one) {
      std::stringstream stream;
      core::OutputArchive archive(stream);
      archive(one);
      return stream.str();
    };
    auto one = all ? whole() : LogHistogram();
    const at::Tensor x = at::randn({100});
    one.update(x);
    const auto used = static_cast<std::size_t>(one.counts().size(-1));
    BOOST_TEST(bytes(one).size() < 300 + 8 * (used + 4) * (all ? 1 : 100) + 8 * (used + 4));
    auto other = all ? whole() : LogHistogram();
    std::stringstream stream(bytes(one));
    core::InputArchive archive(stream);
    archive(other);
    BOOST_TEST(bytes(other) == bytes(one));
    one.update(x * 1e10);
    other.update(x * 1e10);
    check_same(other.results(), one.results());
    BOOST_TEST(bytes(other) == bytes(one));
  }
}

BOOST_AUTO_TEST_SUITE_END()
