// The test of drift: quantiles, T² against an independent computation, singular covariances, sizes and
// limits.
#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <vector>

#include <torchtap/reductions/blocks.hpp>
#include <torchtap/reductions/log_histogram.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/views/monitor/detail/hotelling.hpp>
#include <torchtap/views/monitor/drift.hpp>
#include <torchtap/views/monitor/reference.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(monitor_drift)

using namespace torchtap;
using reductions::Blocks;
using torchtap_test::error_of;
using torchtap_test::says;
using views::monitor::Drift;
using views::monitor::DriftOptions;
using views::monitor::DriftTest;
namespace bdata = boost::unit_test::data;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What chi-squared (d2 = 0) or F exceeds with probability alpha.
struct Quantile {
  double d1, d2, alpha, value;
};

/// Computed with 40 digits by mpmath 1.3; SciPy's isf agrees to 1e-6.
const Quantile quantiles[] = {
    {1, 0, 0.01, 6.634896601021},      {1, 0, 0.001, 10.82756617066},     {1, 0, 1e-06, 23.92812697693},
    {1, 0, 1e-09, 37.32489305136},     {2, 0, 0.01, 9.210340371976},      {2, 0, 0.001, 13.81551055796},
    {2, 0, 1e-06, 27.63102111593},     {2, 0, 1e-09, 41.44653167389},     {3, 0, 0.01, 11.34486673014},
    {3, 0, 0.001, 16.26623619624},     {3, 0, 1e-06, 30.66484970621},     {3, 0, 1e-09, 44.84127533056},
    {5, 0, 0.01, 15.08627246939},      {5, 0, 0.001, 20.51500565243},     {5, 0, 1e-06, 35.88818687967},
    {5, 0, 1e-09, 50.69219370154},     {9, 0, 0.01, 21.66599433346},      {9, 0, 0.001, 27.87716487126},
    {9, 0, 1e-06, 44.81093787069},     {9, 0, 1e-09, 60.66030837377},     {12, 0, 0.01, 26.21696730554},
    {12, 0, 0.001, 32.90949040736},    {12, 0, 1e-06, 50.82525213887},    {12, 0, 1e-09, 67.3492033481},
    {20, 0, 0.01, 37.56623478663},     {20, 0, 0.001, 45.31474661813},    {20, 0, 1e-06, 65.42068103505},
    {20, 0, 1e-09, 83.47912436169},    {1, 49, 0.001, 12.25310043572},    {1, 49, 1e-06, 31.23414809681},
    {1, 49, 1e-09, 56.72694771781},    {1, 99, 0.001, 11.50246782754},    {1, 99, 1e-06, 27.21880235914},
    {1, 99, 1e-09, 45.60230686723},    {1, 511, 0.001, 10.95390081435},   {1, 511, 1e-06, 24.52165695334},
    {1, 511, 1e-09, 38.76092553998},   {1, 4999, 0.001, 10.84038578515},  {1, 4999, 1e-06, 23.9878893727},
    {1, 4999, 1e-09, 37.46834219452},  {2, 48, 0.001, 8.00451437192},     {2, 48, 1e-06, 18.67870584093},
    {2, 48, 1e-09, 32.91296893588},    {2, 98, 0.001, 7.418374566996},    {2, 98, 1e-06, 15.95985691392},
    {2, 98, 1e-09, 25.79448039159},    {2, 510, 0.001, 7.002168788776},   {2, 510, 1e-06, 14.1966135295},
    {2, 510, 1e-09, 21.58861402087},   {2, 4998, 0.001, 6.917311317405},  {2, 4998, 1e-06, 13.85376997209},
    {2, 4998, 1e-09, 20.80942896449},  {5, 45, 0.001, 5.000736471436},    {5, 45, 1e-06, 10.5099666007},
    {5, 45, 1e-09, 17.86970933945},    {5, 95, 0.001, 4.502534039445},    {5, 95, 1e-06, 8.565123873977},
    {5, 95, 1e-09, 13.14166238942},    {5, 507, 0.001, 4.174597501434},   {5, 507, 1e-06, 7.415210436605},
    {5, 507, 1e-09, 10.62987026246},   {5, 4995, 0.001, 4.11020214857},   {5, 4995, 1e-06, 7.201315481942},
    {5, 4995, 1e-09, 10.18698688495},  {9, 41, 0.001, 3.998563595305},    {9, 41, 1e-06, 8.018875440665},
    {9, 41, 1e-09, 13.50880786228},    {9, 91, 0.001, 3.474436251397},    {9, 91, 1e-06, 6.148599876848},
    {9, 91, 1e-09, 9.129948955546},    {9, 503, 0.001, 3.162428412352},   {9, 503, 1e-06, 5.17025399029},
    {9, 503, 1e-09, 7.111382817374},   {9, 4991, 0.001, 3.103947960067},  {9, 4991, 1e-06, 4.997894394649},
    {9, 4991, 1e-09, 6.776384445869},  {13, 37, 0.001, 3.634284191365},   {13, 37, 1e-06, 7.216368437279},
    {13, 37, 1e-09, 12.28084292605},   {13, 87, 0.001, 3.037852604337},   {13, 87, 1e-06, 5.168920600069},
    {13, 87, 1e-09, 7.540058171506},   {13, 499, 0.001, 2.719294072072},  {13, 499, 1e-06, 4.23108133396},
    {13, 499, 1e-09, 5.668699336183},  {13, 4987, 0.001, 2.662285773386}, {13, 4987, 1e-06, 4.07448805031},
    {13, 4987, 1e-09, 5.376151984514}, {20, 30, 0.001, 3.49278411445},    {20, 30, 1e-06, 7.167305741867},
    {20, 30, 1e-09, 12.85624450946},   {20, 80, 0.001, 2.677379337137},   {20, 80, 1e-06, 4.393935076467},
    {20, 80, 1e-09, 6.316418268539},   {20, 492, 0.001, 2.329254868501},  {20, 492, 1e-06, 3.432393886069},
    {20, 492, 1e-09, 4.461781965667},  {20, 4980, 0.001, 2.271957015588}, {20, 4980, 1e-06, 3.286643625234},
    {20, 4980, 1e-09, 4.20149288425}};

/// Rows of 40 numbers: a normal number of the row is in all of them, so that they are correlated.
at::Tensor rows(std::int64_t n, double shift = 0, double scale = 1) {
  return at::relu(at::randn({n, 40}) * scale + at::randn({n, 1}) * 0.5 + 0.3 + shift);
}

template <class Make>
Blocks blocks_of(std::int64_t samples, const Make& make, std::int64_t most = 512) {
  Blocks blocks(most);
  for (std::int64_t i = 0; i < samples; ++i) blocks.update(make());
  return blocks;
}

/// A window of 256 rows in batches.
core::Results window(std::int64_t batch, double shift = 0, double scale = 1) {
  return blocks_of(
             256 / batch, [&] { return rows(batch, shift, scale); }, 256)
      .results();
}

const core::Results& reference() {
  static const core::Results results = [] {
    at::manual_seed(1);
    return blocks_of(400, [] { return rows(32); }).results();
  }();
  return results;
}

}  // namespace

BOOST_AUTO_TEST_CASE(quantiles_are_exact) {
  for (const auto& [d1, d2, alpha, value] : quantiles) {
    BOOST_TEST_CONTEXT(d1 << ' ' << d2 << ' ' << alpha) {
      const double got = d2 == 0 ? views::monitor::detail::chi_squared_limit(alpha, d1)
                                 : views::monitor::detail::f_limit(alpha, d1, d2);
      BOOST_TEST(std::abs(got / value - 1) < 1e-9);
    }
  }
}

/// Of five values of similar probability, so that each is a group.
BOOST_AUTO_TEST_CASE(t2_is_that_of_an_independent_computation) {
  at::manual_seed(2);
  const at::Tensor values = at::tensor({-4.0, 0.0, 1.0, 2.0, 8.0});
  // Shares of the values differ from sample to sample, and so do sizes.
  const auto sample = [&](std::int64_t size, double to_last) {
    const at::Tensor odds = at::randn({5}).mul(0.2).exp();
    odds.select(0, 4).mul_(1 + to_last);
    return values.index_select(0, at::multinomial(odds, size, true));
  };
  Blocks blocks;
  std::vector<at::Tensor> masses, sizes;
  const auto masses_of = [&](const at::Tensor& x) {
    return at::eq(x.unsqueeze(1), values).to(at::kDouble).sum(0);
  };
  for (int i = 0; i < 150; ++i) {
    const at::Tensor x = sample(100 + 7 * (i % 11), 0);
    blocks.update(x);
    masses.push_back(masses_of(x) / x.numel());
    sizes.push_back(at::scalar_tensor(x.numel(), at::kDouble));
  }
  const at::Tensor h = at::stack(masses), n = at::stack(sizes).unsqueeze(1);
  const at::Tensor mean = (h * n).sum(0) / n.sum();
  const at::Tensor covariance = ((h - mean) * n).t().mm(h - mean) / 149;
  const at::Tensor inverse = at::linalg_pinv(covariance, 1e-6, /*hermitian=*/true);
  const DriftTest test(blocks.results());
  BOOST_TEST(test.why_not().empty());
  for (const double to_last : {0.0, 0.1, 1.0}) {
    const at::Tensor x = sample(3000, to_last);
    Blocks seen(2);
    for (const auto& part : x.split(64)) seen.update(part);
    const at::Tensor by = masses_of(x) / 3000 - mean;
    const double want = by.dot(inverse.mv(by)).item<double>() / (1.0 / 3000 + 1 / n.sum().item<double>());
    const Drift drift = test.compare(seen.results());
    BOOST_TEST(std::abs(drift.t2 / want - 1) < 1e-9);
    const at::Tensor m = masses_of(x) / 3000;
    const double psi = ((m - mean) * (m / mean).log()).sum().item<double>();
    BOOST_TEST(std::abs(drift.psi - psi) < 0.02 * psi + 0.01);  // less its mean
    BOOST_TEST(std::abs(drift.zeros - by[1].item<double>()) < 1e-12);
    BOOST_TEST(drift.rows == 3000);
  }
}

BOOST_AUTO_TEST_CASE(the_same_data_raises_no_alarm_and_other_data_does) {
  const DriftTest test(reference());
  BOOST_TEST(test.blocks() == 400);
  at::manual_seed(3);
  double t2 = 0;
  for (int i = 0; i < 300; ++i) {
    const Drift drift = test.compare(window(32));
    BOOST_TEST(!drift.drifted);
    BOOST_TEST(std::abs(drift.psi) < 0.02);
    t2 += drift.t2 / 300;
  }
  BOOST_TEST(t2 > 5);
  BOOST_TEST(t2 < 12);  // about as many as there are directions
  const Drift shifted = test.compare(window(32, 0.3)), wider = test.compare(window(32, 0, 1.4));
  BOOST_TEST(shifted.drifted);
  BOOST_TEST(shifted.shift > 0.2);
  BOOST_TEST(shifted.zeros < -0.05);
  BOOST_TEST(wider.drifted);
  BOOST_TEST(wider.ratio > 1.2);
  BOOST_TEST(shifted.rows == 256);
  BOOST_TEST(shifted.psi > 0.02);
}

BOOST_DATA_TEST_CASE(windows_of_other_batches_are_as_usual, bdata::make({1, 8, 64}), batch) {
  const DriftTest test(reference());
  at::manual_seed(4);
  double t2 = 0, usual = 0;
  for (int i = 0; i < 200; ++i) {
    const Drift drift = test.compare(window(batch));
    BOOST_TEST(!drift.drifted);
    t2 += drift.t2 / 200;
    usual += test.compare(window(32)).t2 / 200;
  }
  BOOST_TEST(t2 > 0.8 * usual);
  BOOST_TEST(t2 < 1.25 * usual);
  BOOST_TEST(test.compare(window(batch, 0.3)).drifted);
}

BOOST_AUTO_TEST_CASE(a_limit_holds_the_rate_that_was_asked_for) {
  DriftOptions options;
  options.false_alarms = 1e-2;
  options.size = 0;
  const DriftTest test(reference(), options);
  at::manual_seed(5);
  int alarms = 0;
  for (int i = 0; i < 4000; ++i) alarms += test.compare(window(32)).drifted ? 1 : 0;
  BOOST_TEST(alarms < 60);  // 40 at most are expected
  BOOST_TEST(alarms > 4);   // and a limit that is never reached holds no rate
  options.false_alarms = 1e-6;
  BOOST_TEST(DriftTest(reference(), options).compare(window(32)).limit > test.compare(window(32)).limit);
}

namespace {

/// Batches of a stream.
struct Stream {
  const char* name;
  std::int64_t blocks, batch;
  std::function<at::Tensor(std::int64_t batch, double& level)> next;
};

/// Rows of `width` numbers that each follow the one before.
auto autoregressive(double by, std::int64_t width) {
  return [=](std::int64_t batch, double& level) {
    const at::Tensor rows = at::empty({batch, 1}), steps = at::randn({batch}, at::kDouble);
    for (std::int64_t i = 0; i < batch; ++i) {
      level = by * level + std::sqrt(1 - by * by) * steps.data_ptr<double>()[i];
      rows.data_ptr<float>()[i] = static_cast<float>(level);
    }
    return width == 1 ? rows : rows + at::randn({batch, width});
  };
}

/// Batches of which some are other as a whole.
auto rare(double share, double scale) {
  return [=](std::int64_t batch, double&) {
    return at::randn({batch, 10}).mul(at::rand({}).item<double>() < share ? scale : 1.0);
  };
}

auto normal(std::int64_t width) {
  return [=](std::int64_t batch, double&) { return at::randn({batch, width}); };
}

std::ostream& operator<<(std::ostream& out, const Stream& stream) {
  return out << stream.name << " in " << stream.blocks << " batches of " << stream.batch;
}

const std::vector<Stream> streams{
    {"one number a batch", 100, 1, normal(1)},
    {"one number a batch", 400, 1, normal(1)},
    {"a heavy tail, one number a batch", 100, 1,
     [](std::int64_t, double&) {
       return at::randn({1, 1}).mul(2).exp();
     }},
    {"a share of 3 %", 100, 1,
     [](std::int64_t, double&) {
       return at::rand({1, 1}).lt(0.03).to(at::kFloat);
     }},
    {"rows of the half of the one before", 100, 32, autoregressive(0.5, 10)},
    {"0.9 of the row before", 400, 1, autoregressive(0.9, 1)},
    {"0.9 of the row before", 100, 1, autoregressive(0.9, 10)},
    {"0.97 of the row before", 100, 32, autoregressive(0.97, 10)},
    {"0.99 of the row before", 400, 32, autoregressive(0.99, 1)},
    {"2 % of batches five times as wide", 100, 32, rare(0.02, 5)},
    {"0.5 % of batches not zero", 400, 32,
     [](std::int64_t batch, double&) {
       return at::randn({batch, 10}).mul(at::rand({}).item<double>() < 0.005 ? 1.0 : 0.0);
     }},
    {"large batches", 100, 256, normal(10)}};

}  // namespace

/// Each of which alarmed in one window of 60 or more often, or always.
BOOST_DATA_TEST_CASE(what_goes_on_as_it_was_learned_does_not_alarm, bdata::make(streams), stream) {
  at::manual_seed(21);
  for (int reference = 0; reference < 3; ++reference) {
    double level = 0;
    const DriftTest test(
        blocks_of(stream.blocks, [&] { return stream.next(stream.batch, level); }).results());
    if (!test.why_not().empty()) {
      BOOST_TEST(test.why_not().find("are needed") != std::string::npos);
      continue;
    }
    std::vector<core::Results> held;
    for (int i = 0; i < 60; ++i) {
      held.push_back(blocks_of(
                         256 / stream.batch, [&] { return stream.next(stream.batch, level); }, 256)
                         .results());
      const Drift drift = test.compare(held);
      if (std::isinf(drift.limit)) continue;
      held.clear();
      BOOST_TEST(!drift.drifted);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rare_event_is_not_drift_and_many_are) {
  at::manual_seed(22);
  const DriftTest test(blocks_of(100, [] { return at::randn({32, 10}); }).results());
  BOOST_REQUIRE(test.why_not().empty());
  const auto with = [&](int others, double scale) {
    int at = 0;
    return test.compare(blocks_of(
                            8,
                            [&] {
                              return at::randn({32, 10}).mul(at++ < others ? scale : 1);
                            },
                            8)
                            .results());
  };
  BOOST_TEST(!with(0, 1).drifted);
  for (const double scale : {3.0, 1000.0}) {
    BOOST_TEST(!with(1, scale).drifted);
    BOOST_TEST(!with(2, scale).drifted);  // an event of a rate of 5 % gives it in one window of 2000
    BOOST_TEST(with(8, scale).drifted);
  }
}

BOOST_AUTO_TEST_CASE(drift_of_single_numbers_is_found) {
  at::manual_seed(23);
  const auto window_of = [](double shift) {
    return blocks_of(
               256,
               [&] {
                 return at::randn({1, 1}) + shift;
               },
               256)
        .results();
  };
  const DriftTest test(blocks_of(400, [] { return at::randn({1, 1}); }).results());
  int found = 0;
  for (int i = 0; i < 20; ++i) found += test.compare(window_of(1)).drifted ? 1 : 0;
  BOOST_TEST(found == 20);
  BOOST_TEST(test.compare(window_of(1000)).t2 == kInfinity);
}

/// As behind a ReLU that lets a tenth pass.
BOOST_AUTO_TEST_CASE(what_is_beside_many_zeros_is_judged) {
  at::manual_seed(29);
  const auto batch = [](double scale) {
    return at::randn({32, 10}).exp() * scale * at::rand({32, 10}).lt(0.1);
  };
  const DriftTest test(blocks_of(100, [&] { return batch(1); }).results());
  const auto found = [&](double scale) {
    int count = 0;
    for (int i = 0; i < 20; ++i)
      count += test.compare(blocks_of(8, [&] { return batch(scale); }).results()).drifted ? 1 : 0;
    return count;
  };
  BOOST_TEST(found(1) == 0);
  BOOST_TEST(found(3) == 20);
}

BOOST_AUTO_TEST_CASE(few_blocks_are_judged_together_with_those_that_follow) {
  const DriftTest test(reference());
  at::manual_seed(24);
  const auto large = [](double shift) { return blocks_of(1, [&] { return rows(256, shift); }).results(); };
  BOOST_TEST(test.least_window() == 3);  // of 403 blocks three are these three in one of 10.8 million cases
  std::vector<core::Results> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(large(0.5));
    const Drift drift = test.compare(held);
    BOOST_TEST(drift.rows == 256 * (i + 1));
    BOOST_TEST(std::isinf(drift.limit) == (i < 2));
    BOOST_TEST(drift.drifted == (i == 2));
  }
}

BOOST_AUTO_TEST_CASE(eigenvectors_are_those_of_a_library) {
  at::manual_seed(25);
  for (const std::int64_t n : {1, 2, 5, 12}) {
    const at::Tensor x = at::randn({n, n}, at::kDouble), a = x.add(x.t()).contiguous();
    const auto found = views::monitor::detail::eigen({a.data_ptr<double>(), a.data_ptr<double>() + n * n},
                                                     static_cast<std::size_t>(n));
    const at::Tensor values = at::tensor(found.values, at::kDouble),
                     vectors = at::tensor(found.vectors, at::kDouble).view({n, n});
    BOOST_TEST(at::allclose(values, std::get<0>(at::linalg_eigh(a)), 1e-9, 1e-9));
    BOOST_TEST(at::allclose(vectors.mm(vectors.t()), at::eye(n, at::kDouble), 1e-9, 1e-9));
    BOOST_TEST(at::allclose(vectors.mm(a), values.unsqueeze(1) * vectors, 1e-9, 1e-9));
  }
}

BOOST_AUTO_TEST_CASE(more_data_alone_never_alarms) {
  const DriftTest test(reference());
  at::manual_seed(6);
  const core::Results large = blocks_of(
                                  4000, [] { return rows(64, 0.05); }, 8)
                                  .results();
  const Drift drift = test.compare(large);
  BOOST_TEST(drift.t2 > drift.limit);  // it is another distribution
  BOOST_TEST(drift.psi < 0.02);
  BOOST_TEST(!drift.drifted);
  DriftOptions options;
  options.size = 0;
  BOOST_TEST(DriftTest(reference(), options).compare(large).drifted);
}

BOOST_AUTO_TEST_CASE(a_window_may_be_a_histogram) {
  const DriftTest test(reference());
  at::manual_seed(7);
  reductions::LogHistogram histogram(reductions::LogHistogramOptions().over_all(true));
  Blocks blocks(8);
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = rows(32, 0.1);
    histogram.update(x);
    blocks.update(x);
  }
  const Drift a = test.compare(histogram.results(), 256), b = test.compare(blocks.results());
  BOOST_TEST(std::abs(a.t2 / b.t2 - 1) < 1e-9);
  BOOST_TEST(std::abs(a.psi - b.psi) < 1e-9);
  BOOST_TEST(a.limit == b.limit);
  BOOST_TEST(std::abs(a.zeros - b.zeros) < 1e-12);
  BOOST_TEST(a.rows == 256);
  BOOST_TEST(std::abs(a.shift - b.shift) < 0.02);  // from the middles of bins
  BOOST_TEST(std::abs(a.ratio - b.ratio) < 0.02);
}

BOOST_AUTO_TEST_CASE(blocks_of_more_than_one_sample_are_a_reference) {
  at::manual_seed(8);
  const core::Results many = blocks_of(5000, [] { return rows(4); }).results();
  BOOST_TEST(many.at("samples").numel() <= 512);
  BOOST_TEST(many.at("samples").max().item<std::int64_t>() == 16);
  const DriftTest test(many);
  BOOST_TEST(test.why_not().empty());
  for (int i = 0; i < 100; ++i) BOOST_TEST(!test.compare(window(4)).drifted);
  BOOST_TEST(test.compare(window(4, 0.3)).drifted);
  // Merging keeps blocks.
  Blocks merged = blocks_of(300, [] { return rows(32); });
  merged.merge(blocks_of(500, [] { return rows(32); }));
  BOOST_TEST(merged.results().at("counts").size(0) == 400);
  BOOST_TEST(!DriftTest(merged.results()).compare(window(32)).drifted);
}

BOOST_AUTO_TEST_CASE(a_constant_that_changes_is_found) {
  const auto constant = [](double value) {
    return blocks_of(200, [&] { return at::full({32, 10}, value); }).results();
  };
  for (const double value : {0.0, 0.1, -3.0, 1e-30}) {
    BOOST_TEST_CONTEXT(value) {
      const DriftTest test(constant(value));
      BOOST_TEST(test.why_not().empty());
      const auto window_of = [](double of) {
        return blocks_of(
                   8,
                   [&] {
                     return at::full({32, 10}, of);
                   },
                   8)
            .results();
      };
      const Drift same = test.compare(window_of(value));
      BOOST_TEST(!same.drifted);
      BOOST_TEST(same.t2 == 0);
      BOOST_TEST(same.shift == 0);
      BOOST_TEST(same.ratio == 1);
      for (const double other : {0.0, 0.5, -0.5, 1e-20, 1e6}) {
        if (other == value) continue;
        const Drift drift = test.compare(window_of(other));
        BOOST_TEST(drift.drifted);
        BOOST_TEST(drift.t2 == kInfinity);
        BOOST_TEST(std::abs(drift.shift) == kInfinity);
      }
      BOOST_TEST(test.compare(window(32)).drifted);
    }
  }
}

BOOST_AUTO_TEST_CASE(two_values_whose_shares_are_always_the_same) {
  const auto halves = [](double share, double a, double b) {
    const at::Tensor x = at::full({32, 100}, a);
    x.narrow(1, 0, static_cast<std::int64_t>(100 * share)).fill_(b);
    return x;
  };
  const DriftTest test(blocks_of(200, [&] { return halves(0.5, 0, 1); }).results());
  const auto drift = [&](double share, double a, double b) {
    return test.compare(blocks_of(
                            8, [&] { return halves(share, a, b); }, 8)
                            .results());
  };
  BOOST_TEST(!drift(0.5, 0, 1).drifted);
  BOOST_TEST(drift(0.7, 0, 1).drifted);
  BOOST_TEST(drift(0.5, 0, 2).drifted);
  BOOST_TEST(drift(0.5, 0, 0.5).drifted);
  // One value varies, and zeros do not: a mask.
  const auto masked = [](double share) {
    const at::Tensor x = at::randn({32, 100}) + 4 + at::randn({32, 1});
    x.narrow(1, 0, static_cast<std::int64_t>(100 * share)).zero_();
    return x;
  };
  at::manual_seed(9);
  const DriftTest mask(blocks_of(200, [&] { return masked(0.5); }).results());
  BOOST_TEST(!mask.compare(blocks_of(
                               8, [&] { return masked(0.5); }, 8)
                               .results())
                  .drifted);
  BOOST_TEST(mask.compare(blocks_of(
                              8, [&] { return masked(0.6); }, 8)
                              .results())
                 .drifted);
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_is_left_out) {
  const auto spoil = [](const at::Tensor& x) {
    return at::cat({x, at::full({x.size(0), 1}, std::nan("")), at::full({x.size(0), 2}, kInfinity),
                    at::full({x.size(0), 1}, -kInfinity)},
                   1);
  };
  at::manual_seed(1);
  const DriftTest spoilt(blocks_of(400, [&] { return spoil(rows(32)); }).results());
  const DriftTest test(reference());
  at::manual_seed(10);
  const core::Results plain = window(32, 0.1);
  at::manual_seed(10);
  const core::Results with = blocks_of(
                                 8, [&] { return spoil(rows(32, 0.1)); }, 8)
                                 .results();
  const Drift a = test.compare(plain), b = spoilt.compare(with);
  BOOST_TEST(a.t2 == b.t2);
  BOOST_TEST(a.limit == b.limit);
  BOOST_TEST(a.psi == b.psi);
  BOOST_TEST(std::abs(a.shift - b.shift) < 1e-9);
  const Drift none = test.compare(blocks_of(
                                      8,
                                      [] {
                                        return at::full({32, 4}, std::nan(""));
                                      },
                                      8)
                                      .results());
  BOOST_TEST(!none.drifted);
  const DriftTest nothing(blocks_of(200, [] { return at::full({32, 4}, std::nan("")); }).results());
  BOOST_TEST(nothing.why_not() == "no finite values");
  BOOST_TEST(!nothing.compare(plain).drifted);
}

BOOST_AUTO_TEST_CASE(too_few_blocks_are_not_judged) {
  at::manual_seed(11);
  const DriftTest few(blocks_of(37, [] { return rows(32); }).results());
  BOOST_TEST(few.why_not() == "37 blocks; 100 are needed");
  const Drift drift = few.compare(window(32, 3));
  BOOST_TEST(!drift.drifted);
  BOOST_TEST(drift.limit == kInfinity);
  BOOST_TEST(drift.psi > 1);
  DriftOptions options;
  options.least_blocks = 30;
  const DriftTest enough(blocks_of(37, [] { return rows(32); }).results(), options);
  BOOST_TEST(enough.why_not().empty());
  BOOST_TEST(enough.compare(window(32, 3)).drifted);
  const DriftTest one(blocks_of(1, [] { return rows(32); }).results());
  BOOST_TEST(one.why_not() == "1 block; 100 are needed");
  BOOST_TEST(!one.compare(window(32, 3)).drifted);
}

BOOST_AUTO_TEST_CASE(limits_are_reproducible) {
  const DriftTest a(reference()), b(reference());
  at::manual_seed(12);
  const auto limit = [](const DriftTest& test, std::int64_t of) {
    return test
        .compare(blocks_of(
                     of, [] { return rows(16); }, 64)
                     .results())
        .limit;
  };
  BOOST_TEST(limit(a, 16) == limit(b, 16));
  BOOST_TEST(limit(a, 1) == kInfinity);  // half a block
  BOOST_TEST(limit(a, 16) == limit(a, 64));
  // At least that of chi-squared, and not much more for data as even as this.
  BOOST_TEST(limit(a, 16) > views::monitor::detail::chi_squared_limit(1e-6, 7));
  BOOST_TEST(limit(a, 16) < 1.4 * views::monitor::detail::chi_squared_limit(1e-6, 9));
}

BOOST_AUTO_TEST_CASE(correlation_of_what_follows_raises_the_limit) {
  at::manual_seed(13);
  double level = 0;
  const auto drawn_out = [&] {
    level = 0.9 * level + 0.44 * at::randn({}).item<double>();
    return rows(32, 0.3 * level);
  };
  const core::Results in_order = blocks_of(512, drawn_out).results();
  core::Results shuffled;
  const at::Tensor order = at::randperm(512);
  for (const auto& [name, tensor] : in_order)
    shuffled.set(name, name == "low" || name == "high" ? tensor : tensor.index_select(0, order));
  const DriftTest correlated(in_order), mixed(shuffled);
  const auto next = [&] { return blocks_of(8, drawn_out, 8).results(); };
  BOOST_TEST(correlated.compare(next()).limit > 2 * mixed.compare(next()).limit);
  int alarms = 0;
  for (int i = 0; i < 500; ++i) alarms += correlated.compare(next()).drifted ? 1 : 0;
  BOOST_TEST(alarms <= 2);
}

BOOST_AUTO_TEST_CASE(other_results_and_options_are_errors) {
  BOOST_CHECK_EXCEPTION(DriftTest{core::Results()}, c10::ValueError,
                        says({"DriftTest", "of no sample", "reductions::Blocks"}));
  BOOST_CHECK_EXCEPTION(DriftTest(core::Results{{"mean", at::ones({})}}), c10::ValueError, says({"mean"}));
  core::Results damaged = reference();
  damaged.set("counts", -damaged.at("counts"));
  BOOST_CHECK_THROW(DriftTest{damaged}, c10::ValueError);
  damaged.set("counts", at::ones({3}));
  BOOST_CHECK_THROW(DriftTest{damaged}, c10::ValueError);
  const DriftTest test(reference());
  BOOST_CHECK_EXCEPTION(test.compare({{"counts", at::ones({3})}}), c10::ValueError, says({"the window"}));
  for (const double rate : {0.0, -1.0, 0.5, std::nan("")}) {
    DriftOptions options;
    options.false_alarms = rate;
    BOOST_CHECK_EXCEPTION(DriftTest(reference(), options), c10::ValueError, says({"false_alarms"}));
  }
}

BOOST_AUTO_TEST_CASE(a_reference_is_a_recording_of_blocks) {
  const torchtap_test::TemporaryDirectory folder;
  const auto entry = [](const std::string& path, const std::string& kind, core::Value value) {
    storage::Entry one;
    one.path = path;
    one.aliases = {"alias of " + path};
    one.type = "Linear";
    one.kind = kind;
    one.samples = 400;
    one.reduction = "Blocks(512)";
    one.value = std::move(value);
    return one;
  };
  const core::Value value = core::to_value(reference());
  storage::Entry mean = entry("mean", "ForwardOutput", at::ones({2}));
  mean.reduction = "Mean";
  const std::vector<storage::Entry> entries{
      entry("", "ForwardPre", core::Value::Dict{{"0", value}, {"1", value}}),
      entry("", "ForwardOutput", core::Value::Dict{{"0", value}}), entry("conv", "ForwardOutput", value),
      mean};
  storage::save(folder / "reference", entries, storage::SaveOptions().mkdir(true));
  const auto loaded = views::monitor::Reference::load(folder / "reference");
  BOOST_TEST(loaded.tensors().size() == 4u);
  BOOST_TEST((loaded.paths() == std::vector<std::string>{"", "conv"}));
  BOOST_REQUIRE(loaded.find("", "ForwardPre", 1) != nullptr);
  BOOST_TEST(loaded.find("", "ForwardPre", 1)->at("counts").equal(reference().at("counts")));
  BOOST_TEST(loaded.find("conv", "ForwardOutput") == loaded.find("alias of conv", "ForwardOutput"));
  BOOST_TEST(loaded.find("conv", "ForwardOutput") != nullptr);
  BOOST_TEST(loaded.find("conv", "ForwardPre") == nullptr);
  BOOST_TEST(loaded.find("", "ForwardPre", 2) == nullptr);
  BOOST_TEST(loaded.digest().size() == 16u);
  BOOST_TEST(loaded.digest() == views::monitor::Reference::load(folder / "reference").digest());
  storage::save(folder / "other", {entries[2]}, storage::SaveOptions().mkdir(true));
  BOOST_TEST(loaded.digest() != views::monitor::Reference::load(folder / "other").digest());
  storage::save(folder / "none", {mean}, storage::SaveOptions().mkdir(true));
  BOOST_CHECK_EXCEPTION(views::monitor::Reference::load(folder / "none"), c10::ValueError,
                        says({"no distributions", "--learn"}));
}

BOOST_AUTO_TEST_SUITE_END()
