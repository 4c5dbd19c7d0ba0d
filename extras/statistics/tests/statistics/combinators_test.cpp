// Tests Series, Map, Every, Window, Over, and user-defined reductions.

#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <sstream>

#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(combinators)

using namespace torchtap;
using namespace torchtap::reductions;
namespace bdata = boost::unit_test::data;

namespace {

/// A minimal user-defined reduction: the number of positive elements. No check(), fresh() or describe().
struct Positive {
  std::int64_t samples = 0;
  at::Tensor total = at::zeros({}, at::kLong);

  void update(const at::Tensor& sample) {
    TORCH_CHECK_VALUE(sample.dim() <= 1, "Positive: expected at most one dimension");
    total = total + (sample > 0).sum();  // not in place, as copies share the tensor
    ++samples;
  }
  void merge(const Positive& other) {
    total = total + other.total;
    samples += other.samples;
  }
  std::int64_t count() const { return samples; }
  core::Results results() const { return samples == 0 ? core::Results{} : core::Results{{"value", total}}; }
  template <class Archive>
  void serialize(Archive& archive) {
    archive(samples, total);
  }
};

at::Tensor drifting(std::int64_t n) {
  at::manual_seed(n);
  return at::randn({n, 3}, at::kDouble) + at::arange(n, at::kDouble).unsqueeze(1);
}

template <class R>
void feed(R& reduction, const at::Tensor& rows) {
  for (const auto& row : rows.unbind(0)) reduction.update(row);
}

template <class R>
void reload(const R& from, R& to) {
  std::stringstream stream;
  {
    core::OutputArchive archive(stream);
    archive(from);
  }
  core::InputArchive archive(stream);
  archive(to);
}

}  // namespace

BOOST_AUTO_TEST_CASE(series_names_results_by_member) {
  Series series(Moments(), Min(), AbsMax(), Count(), LogHistogram(), EMA(), Min(MinOptions()),
                window(2, Sum()), Positive());
  const auto x = drifting(9);
  feed(series, x);
  BOOST_TEST(series.results().names() == (std::vector<std::string>{"moments.mean",
                                                                   "moments.variance",
                                                                   "moments.skewness",
                                                                   "moments.kurtosis",
                                                                   "min.value",
                                                                   "abs_max.value",
                                                                   "count.rows",
                                                                   "count.elements",
                                                                   "count.nan",
                                                                   "count.inf",
                                                                   "count.zeros",
                                                                   "log_histogram.counts",
                                                                   "log_histogram.low",
                                                                   "log_histogram.high",
                                                                   "log_histogram.zeros",
                                                                   "log_histogram.negative_infinity",
                                                                   "log_histogram.positive_infinity",
                                                                   "log_histogram.nan",
                                                                   "ema.value",
                                                                   "min_2.value",
                                                                   "window.value",
                                                                   "positive.value"}),
             boost::test_tools::per_element());
  BOOST_TEST(close(series.get<Moments>().mean(), x.mean(0), 1e-12));
  BOOST_TEST(close(series.get<6>().value(), x.amin(0), 0.0));
  BOOST_TEST(series.count() == 9);
  BOOST_TEST(Series(Mean(), Sum(SumOptions().over({0}))).describe() == "Series(Mean, Sum(over=[0]))");
}

BOOST_AUTO_TEST_CASE(a_series_updates_all_or_none) {
  const auto options = [](auto wanted) { return wanted.over({0}); };
  Series series(Sum(options(SumOptions())), over({0}, Positive()),
                map([](const at::Tensor& x) { return x; }, Positive()),
                Max(options(MaxOptions()).non_finite(NonFinite::raise)), Min());
  const auto sum = [&] { return series.get<0>().value(); };
  series.update(at::ones({4}));
  const auto before = sum();
  BOOST_TEST(before.item<double>() == 4.0);
  const auto unchanged = [&] {
    BOOST_TEST(sum().equal(before));
    BOOST_TEST(series.get<0>().count() == 4);
    BOOST_TEST(series.get<1>().count() == 4);
    BOOST_TEST(series.get<2>().count() == 1);
    BOOST_TEST(series.get<3>().count() == 4);
    BOOST_TEST(series.get<4>().count() == 1);
  };
  BOOST_CHECK_THROW(series.update(at::full({4}, std::numeric_limits<double>::quiet_NaN())), c10::ValueError);
  unchanged();
  BOOST_CHECK_THROW(series.update(at::ones({5})), c10::ValueError);  // Min
  unchanged();

  // Members without a check: those before the throwing one are rolled back too.
  Series unknown(Sum(), over({0}, Positive()),
                 map(
                     [](const at::Tensor& x) {
                       TORCH_CHECK_VALUE(x.sum().item<double>() < 10, "too much");
                       return x;
                     },
                     Positive()),
                 Max());
  unknown.update(at::ones({4}));
  BOOST_CHECK_THROW(unknown.update(at::full({4}, 3.0F)), c10::ValueError);
  BOOST_TEST(unknown.get<0>().count() == 1);
  BOOST_TEST(unknown.get<1>().count() == 4);
  BOOST_TEST(unknown.get<2>().count() == 1);
  BOOST_TEST(unknown.get<3>().count() == 1);
  Series longer{Sum(), Max()};
  longer.update(at::ones({2}));
  Series other{Sum(), Max()};
  other.update(at::ones({3}));
  BOOST_CHECK_THROW(longer.merge(other), c10::ValueError);
  BOOST_TEST(longer.get<0>().count() == 1);
}

BOOST_AUTO_TEST_CASE(map_every_and_window) {
  const auto x = drifting(23);
  auto squares = map([](const at::Tensor& sample) { return sample.square(); }, Mean());
  feed(squares, x);
  BOOST_TEST(close(squares.inner().value(), x.square().mean(0), 1e-12));
  BOOST_TEST(squares.describe() == "Map(Mean)");
  auto assigned = squares;
  assigned = squares.fresh();  // even though a lambda cannot be assigned
  BOOST_TEST(assigned.count() == 0);

  auto tenth = every(10, Mean());
  for (std::int64_t i = 0; i < 23; ++i) tenth.update(i % 10 == 0 ? x[i] : at::ones({i}));
  BOOST_TEST(tenth.count() == 3);
  BOOST_TEST(tenth.seen() == 23);
  BOOST_TEST(close(tenth.inner().value(), x.slice(0, 0, 23, 10).mean(0), 1e-12));
  BOOST_TEST(tenth.describe() == "Every(10, Mean)");

  auto latest = window(5, Mean());
  for (std::int64_t i = 0; i < 23; ++i) {
    latest.update(x[i]);
    BOOST_TEST(
        close(latest.reduced().value(), x.slice(0, std::max<std::int64_t>(0, i - 4), i + 1).mean(0), 1e-12));
    BOOST_TEST(latest.count() == std::min<std::int64_t>(5, i + 1));
  }
  BOOST_TEST(latest.seen() == 23);
  BOOST_CHECK_THROW(latest.update(at::ones({4})), c10::ValueError);
  BOOST_TEST(latest.seen() == 23);
  BOOST_CHECK_THROW(window(0, Mean()), c10::ValueError);
  BOOST_CHECK_THROW(every(0, Mean()), c10::ValueError);
  BOOST_CHECK_THROW(window(2, latest.reduced()), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(every_merges_where_one_stream_would_agree) {
  const auto x = drifting(40);
  for (std::int64_t split = 0; split <= 40; ++split) {
    auto left = every(4, Sum()), right = every(4, Sum()), whole = every(4, Sum());
    feed(left, x.narrow(0, 0, split));
    feed(right, x.narrow(0, split, 40 - split));
    feed(whole, x);
    if (split % 4 == 0 || split == 40) {
      left.merge(right);
      BOOST_TEST(close(left.results().at("value"), whole.results().at("value"), 1e-12));
      BOOST_TEST(left.seen() == 40);
    } else {
      const auto before = left.results();
      BOOST_CHECK_THROW(left.merge(right), c10::ValueError);
      BOOST_TEST(close(left.results().at("value"), before.at("value"), 0.0));
      BOOST_TEST(left.seen() == split);
    }
  }
  auto third = every(3, Sum());
  BOOST_CHECK_THROW(third.merge(every(4, Sum())), c10::ValueError);
}

BOOST_DATA_TEST_CASE(window_merges_as_one_stream, bdata::make({1, 3, 7, 50}), size) {
  const auto x = drifting(24);
  for (std::int64_t split = 0; split <= 24; ++split) {
    auto left = window(size, Last()), right = window(size, Last());
    auto whole = window(size, Mean());
    auto left_mean = window(size, Mean()), right_mean = window(size, Mean());
    for (std::int64_t i = 0; i < 24; ++i) {
      (i < split ? left : right).update(x[i]);
      (i < split ? left_mean : right_mean).update(x[i]);
      whole.update(x[i]);
    }
    left.merge(right);
    left_mean.merge(right_mean);
    // Further updates show whether the oldest samples leave in the right order.
    for (int more = 0; more < 5; ++more) {
      BOOST_TEST(close(left.reduced().value(), more == 0 ? x[23] : x[more - 1], 0.0));
      BOOST_TEST(close(left_mean.reduced().value(), whole.reduced().value(), 1e-12));
      BOOST_TEST(left_mean.seen() == whole.seen());
      left.update(x[more]);
      left_mean.update(x[more]);
      whole.update(x[more]);
    }
  }
  auto twice = window(size, Mean());
  feed(twice, x);
  twice.merge(twice);
  BOOST_TEST(twice.seen() == 48);
  BOOST_CHECK_THROW(twice.merge(window(size + 1, Mean())), c10::ValueError);
  auto other = window(size, Mean());
  other.update(at::ones({4}));
  BOOST_CHECK_THROW(twice.merge(other), c10::ValueError);
  BOOST_TEST(twice.seen() == 48);
}

BOOST_AUTO_TEST_CASE(combinators_survive_an_archive) {
  const auto x = drifting(30);
  const auto make = [] {
    return Series(every(4, Mean()), window(5, Moments()),
                  map([](const at::Tensor& s) { return s.abs(); }, Max()), LogHistogram(), over({0}, Sum()));
  };
  auto one = make(), two = make();
  feed(one, x.narrow(0, 0, 13));
  reload(one, two);
  feed(one, x.narrow(0, 13, 17));
  feed(two, x.narrow(0, 13, 17));
  for (const auto& [name, tensor] : one.results()) BOOST_TEST(close(two.results().at(name), tensor, 0.0));
  BOOST_TEST(two.get<0>().seen() == 30);
}

BOOST_AUTO_TEST_CASE(a_reduction_of_the_users_own) {
  const auto sink = core::make_sink(Positive());
  const auto x = drifting(12) - 6;
  for (const auto& row : x.unbind(0)) sink->update(row);
  BOOST_TEST(sink->results().at("value").item<std::int64_t>() == (x > 0).sum().item<std::int64_t>());
  BOOST_TEST(sink->fresh()->count() == 0);
  const auto inside = core::make_sink(Series(every(2, Positive()), Sum()));  // has no fresh()
  for (const auto& row : x.unbind(0)) inside->update(row);
  BOOST_TEST(inside->fresh()->count() == 0);
  BOOST_TEST(inside->results().at("every.value").item<std::int64_t>() ==
             (x.slice(0, 0, 12, 2) > 0).sum().item<std::int64_t>());
  const auto folded =
      core::make_sink(window(3, [](const at::Tensor& a, const at::Tensor& s) { return at::max(a, s); }));
  for (const auto& row : x.unbind(0)) folded->update(row);
  BOOST_TEST(close(folded->results().at("value"), x.narrow(0, 9, 3).amax(0), 0.0));
}

BOOST_AUTO_TEST_CASE(parts_of_a_temporary_outlive_it) {
  static_assert(std::is_same_v<decltype(std::declval<Every<Sum>>().inner()), Sum>);
  static_assert(std::is_same_v<decltype(std::declval<Over<Sum>>().inner()), Sum>);
  static_assert(std::is_same_v<decltype(std::declval<Series<Sum, Min>>().get<1>()), Min>);
  static_assert(std::is_same_v<decltype(std::declval<Series<Sum, Min>>().get<Sum>()), Sum>);
  static_assert(std::is_same_v<decltype(std::declval<AnySeries>().at(0)), Any>);
  static_assert(std::is_same_v<decltype(std::declval<const Series<Sum, Min>&>().get<Sum>()), const Sum&>);
  const auto fed = [] {
    Series series{Sum(), Min()};
    feed(series, at::ones({5, 3}));
    return series;
  };
  const auto& sum = fed().get<Sum>();
  BOOST_TEST(sum.count() == 5);
  BOOST_TEST(fed().at(1).results().at("value").equal(at::ones({3})));
}

BOOST_AUTO_TEST_SUITE_END()
