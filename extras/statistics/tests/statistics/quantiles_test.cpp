// Tests the results and guarantees of Quantiles.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <sstream>

#include <torchtap/reductions/quantiles.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(quantiles)

using namespace torchtap;
using namespace torchtap::reductions;
namespace bdata = boost::unit_test::data;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor numbers(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

template <class R>
R fed(R reduction, const at::Tensor& rows, std::int64_t batch) {
  for (const auto& part : rows.split(batch)) reduction.update(part);
  return reduction;
}

/// The largest distance, as a fraction of n, between q and the ranks of the answer in `column`.
double rank_error(const at::Tensor& column, const at::Tensor& levels, const at::Tensor& answers) {
  const auto sorted = std::get<0>(column.contiguous().sort());
  const auto n = static_cast<double>(sorted.size(0));
  const auto below = at::searchsorted(sorted, answers.contiguous(), false, false).to(at::kDouble) / n;
  const auto above = at::searchsorted(sorted, answers.contiguous(), false, true).to(at::kDouble) / n;
  return at::maximum(below - levels, levels - above).clamp_min(0).max().item<double>();
}

}  // namespace

BOOST_AUTO_TEST_CASE(exact_while_small) {
  at::manual_seed(0);
  const auto x = at::randn({512, 3}, at::kDouble);
  const auto sketch = fed(Quantiles(QuantilesOptions().over({0})), x, 10);
  BOOST_TEST(sketch.rank_error() == 0.0);
  const auto levels = at::linspace(0, 1, 37, at::kDouble);
  const std::vector<double> wanted(levels.data_ptr<double>(), levels.data_ptr<double>() + 37);
  BOOST_TEST(close(sketch.quantiles(wanted), at::quantile(x, levels, 0), 1e-12));
  BOOST_TEST(close(sketch.median(), at::quantile(x, 0.5, 0), 1e-12));
}

BOOST_DATA_TEST_CASE(the_rank_error_holds, bdata::make({16, 64, 512}) * bdata::xrange(4), size, order) {
  at::manual_seed(order);
  const std::int64_t n = 60000;
  auto x = at::randn({n, 4}, at::kFloat);
  if (order == 1) x = std::get<0>(x.sort(0));
  if (order == 2) x = x + at::arange(n, at::kFloat).unsqueeze(1) / 1000;
  if (order == 3) x = x.mul(3).round();  // many equal values
  const auto levels = at::linspace(0.01, 0.99, 99, at::kDouble);
  const std::vector<double> wanted(levels.data_ptr<double>(), levels.data_ptr<double>() + 99);
  int misses = 0;
  const std::int64_t batch = order == 0 ? 37 : 1000;
  const auto options = QuantilesOptions().k(size).over({0}).seed(order);
  const auto sketch = fed(Quantiles(options), x, batch);
  auto merged = fed(Quantiles(options), x.narrow(0, 0, 20000), batch);
  for (const std::int64_t from : {20000, 40000}) {
    merged.merge(
        fed(Quantiles(QuantilesOptions().k(size).over({0}).seed(from)), x.narrow(0, from, 20000), batch));
  }
  for (const auto& one : {sketch, merged}) {
    BOOST_TEST(one.count() == n);
    BOOST_TEST(one.rank_error() > 0.0);
    BOOST_TEST(one.retained() < 3 * size + 8 * 20);
    const auto answers = one.quantiles(wanted);
    for (std::int64_t i = 0; i < 4; ++i) {
      // The bound holds for one q with probability 0.99. For all 99 together, 1.5 times the bound is ample.
      const double error = rank_error(x.select(1, i), levels, answers.select(1, i));
      BOOST_TEST(error < 1.5 * one.rank_error());
      const auto at_median = rank_error(x.select(1, i), numbers({0.5}), one.median().narrow(0, i, 1));
      misses += at_median > one.rank_error() ? 1 : 0;
    }
    BOOST_TEST(close(one.quantile(0), x.amin(0), 0.0));
    BOOST_TEST(close(one.quantile(1), x.amax(0), 0.0));
  }
  BOOST_TEST(misses <= 1);
}

BOOST_AUTO_TEST_CASE(nan_is_left_out_and_counted) {
  at::manual_seed(4);
  auto x = at::randn({20000, 3}, at::kDouble);
  x.select(1, 1).masked_fill_(at::rand({20000}) < 0.3, kNaN);
  x.select(1, 2).fill_(kNaN);
  for (const std::int64_t rows : {300, 20000}) {
    const auto part = x.narrow(0, 0, rows);
    const auto sketch = fed(Quantiles(QuantilesOptions().over({0})), part, 64);
    BOOST_TEST(sketch.nan().equal(part.isnan().sum(0)));
    const auto finite = part.select(1, 1).masked_select(part.select(1, 1).isfinite());
    const auto levels = numbers({0.1, 0.5, 0.9});
    const auto answers = sketch.quantiles({0.1, 0.5, 0.9});
    BOOST_TEST(rank_error(finite, levels, answers.select(1, 1)) <=
               1.5 * sketch.rank_error() + 1.0 / finite.size(0));
    BOOST_TEST(close(sketch.quantile(1)[1], finite.max(), 0.0));
    BOOST_TEST(answers.select(1, 2).isnan().all().item<bool>());
    BOOST_TEST(std::isnan(sketch.quantile(0)[2].item<double>()));
  }
  auto infinite = fed(Quantiles(QuantilesOptions().over_all(true)), numbers({kInf, 1, 2, -kInf, kInf}), 2);
  BOOST_TEST(infinite.quantile(0).item<double>() == -kInf);
  BOOST_TEST(infinite.median().item<double>() == 2.0);
  BOOST_TEST(infinite.quantile(0.8).item<double>() == kInf);
}

BOOST_AUTO_TEST_CASE(copies_and_reloads_go_on_alike) {
  at::manual_seed(5);
  const auto x = at::randn({5000, 2});
  const auto options = QuantilesOptions().k(32).seed(9).at({0.25, 0.75}).over({0});
  auto one = fed(Quantiles(options), x.narrow(0, 0, 2000), 11);
  std::stringstream stream;
  {
    core::OutputArchive archive(stream);
    archive(one);
  }
  Quantiles loaded;
  core::InputArchive archive(stream);
  archive(loaded);
  auto copy = one;
  for (auto* sketch : {&one, &loaded, &copy}) *sketch = fed(*sketch, x.narrow(0, 2000, 3000), 11);
  const auto want = fed(Quantiles(options), x, 5000).results();
  for (const auto* sketch : {&loaded, &copy}) {
    BOOST_TEST(close(sketch->results().at("quantiles"), one.results().at("quantiles"), 0.0));
    BOOST_TEST(close(sketch->results().at("levels"), numbers({0.25, 0.75}), 0.0));
  }
  BOOST_TEST(close(fed(one.fresh(), x, 11).results().at("quantiles"),
                   fed(Quantiles(options), x, 11).results().at("quantiles"), 0.0));
  BOOST_CHECK_THROW(one.merge(Quantiles(QuantilesOptions().over({0}))), c10::ValueError);
  BOOST_CHECK_THROW(one.quantile(1.5), c10::ValueError);
  BOOST_CHECK_THROW(one.quantile(kNaN), c10::ValueError);
  BOOST_CHECK_THROW(Quantiles(QuantilesOptions().k(4)), c10::ValueError);
  BOOST_CHECK_THROW(Quantiles(QuantilesOptions().at({-0.1})), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(quantiles_keep_their_word_on_hostile_streams) {
  at::manual_seed(0);
  const std::int64_t n = 400000;
  at::Tensor with_nan = at::randn({n});
  with_nan.slice(0, 0, n, 1000).fill_(kNaN);
  const at::Tensor normal = at::randn({n});
  const std::vector<std::pair<const char*, at::Tensor>> streams{
      {"normal", normal},
      {"sorted", std::get<0>(normal.sort())},
      {"reversed", std::get<0>(normal.sort(0, true))},
      {"constant", at::full({n}, 3.0F)},
      {"two values", at::randint(2, {n}, at::kFloat)},
      {"heavy tails", normal / at::randn({n}).abs().clamp_min(1e-6)},
      {"small after large", at::cat({normal.narrow(0, 0, n / 2) * 1000, normal.narrow(0, n / 2, n / 2)})},
      {"saw", at::arange(n, at::kFloat).remainder(65536)},
      {"with NaN", with_nan},
      {"float64", at::randn({n}, at::kDouble)},
      {"half", normal.to(at::kHalf)},
  };
  const std::vector<double> levels{0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0};
  for (const auto& [name, stream] : streams) {
    const at::Tensor wide = stream.to(at::kDouble);
    const at::Tensor sorted = std::get<0>(wide.masked_select(wide.isnan().logical_not()).sort());
    for (const std::int64_t part :
         {n, std::int64_t{70000}, std::int64_t{3000}, std::int64_t{700}, std::int64_t{100}}) {
      Quantiles sketch(QuantilesOptions().over_all(true)), other(QuantilesOptions().over_all(true).seed(1));
      const auto parts = stream.split(part);
      for (std::size_t i = 0; i < parts.size(); ++i) (i % 2 == 0 ? sketch : other).update(parts[i]);
      sketch.merge(other);
      BOOST_TEST(sketch.count() == n);
      BOOST_TEST(sketch.nan().item<std::int64_t>() == n - sorted.numel());
      BOOST_TEST(sketch.retained() < 8 * 512);
      const at::Tensor got = sketch.quantiles(levels).to(at::kDouble);
      for (std::size_t i = 0; i < levels.size(); ++i) {
        // The ranks of that value in the stream, from the first to the last equal one.
        const at::Tensor value = got[static_cast<std::int64_t>(i)];
        const double first = at::searchsorted(sorted, value).item<double>();
        const double last = at::searchsorted(sorted, value, false, /*right=*/true).item<double>();
        const double wanted = levels[i] * static_cast<double>(sorted.numel() - 1);
        const double off = std::max({0.0, first - wanted, wanted - last});
        BOOST_TEST(off <= sketch.rank_error() * static_cast<double>(n) + 1,
                   name << ", parts of " << part << ", q = " << levels[i] << ", off by " << off);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(quantiles_of_each_channel_are_its_own) {
  at::manual_seed(0);
  const at::Tensor x = at::randn({8, 5, 60, 60}) + at::arange(5).view({1, 5, 1, 1}) * 100;
  for (const auto& sample : {x, x.contiguous(at::MemoryFormat::ChannelsLast), x.to(at::kDouble)}) {
    Quantiles sketch(QuantilesOptions().over({0, 2, 3}));
    sketch.update(sample);
    const at::Tensor want =
        at::quantile(x.permute({1, 0, 2, 3}).reshape({5, -1}), at::tensor({0.1F, 0.5F, 0.9F}), 1);
    BOOST_TEST(close(sketch.quantiles({0.1, 0.5, 0.9}), want, 0.0, 0.06));
    BOOST_TEST(sketch.quantile(0).equal(x.amin({0, 2, 3}).to(sketch.quantile(0).scalar_type())));
  }
}

#ifndef __SANITIZE_THREAD__  // to which OpenMP's barriers are invisible
BOOST_AUTO_TEST_CASE(the_number_of_threads_changes_nothing) {
  at::manual_seed(0);
  const int threads = at::get_num_threads();
  const at::Tensor x = at::randn({16, 24, 60, 61});
  const auto of = [&](int count, const std::vector<std::int64_t>& over) {
    at::set_num_threads(count);
    QuantilesOptions options;
    over.empty() ? options.over_all(true) : options.over(over);
    Quantiles quantiles(options);
    quantiles.update(x);
    return quantiles.quantiles({0.1, 0.5, 0.9});
  };
  for (const auto& over : std::vector<std::vector<std::int64_t>>{{}, {0, 2, 3}, {0, 1, 2}, {0}}) {
    const at::Tensor one = of(1, over);
    for (const int count : {2, 3, 8}) BOOST_TEST(of(count, over).equal(one), at::IntArrayRef(over) << count);
  }
  at::set_num_threads(threads);
}
#endif

BOOST_AUTO_TEST_SUITE_END()
