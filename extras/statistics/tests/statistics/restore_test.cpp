#include <functional>

#include <torchtap/base/error.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/only_where.hpp"
#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(restore_suite)

using namespace torchtap::reductions;
using torchtap::core::make_sink;
using torchtap::core::SavedSink;
using torchtap::core::Sink;

namespace {

using Make = std::function<std::unique_ptr<Sink>()>;

template <class R>
Make made(const R& reduction) {
  return [reduction] { return make_sink(reduction); };
}

/// Every reduction that can be restored, with non-default configurations.
std::vector<std::pair<std::string, Make>> all() {
  const auto omit = NonFinite::omit;
  return {
      {"Sum", made(Sum(SumOptions().over({0}).non_finite(omit)))},
      {"Mean", made(Mean(MeanOptions().over_all(true)))},
      {"Moments", made(Moments(MomentsOptions().over({-1}).unbiased(false)))},
      {"Min", made(Min(MinOptions().over({0})))},
      {"Max", made(Max(MaxOptions().over({0})))},
      {"AbsMax", made(AbsMax(AbsMaxOptions().over({0})))},
      {"Norm", made(Norm(NormOptions().p(3).over({0})))},
      {"Count", made(Count(CountOptions().over({0})))},
      {"First", made(First(FirstOptions().over({0})))},
      {"Last", made(Last(LastOptions().over({0})))},
      {"EMA", made(EMA(EMAOptions(0.75).over({0})))},
      {"Histogram", made(Histogram(HistogramOptions(7, -1, 2).over({0})))},
      {"Histogram", made(Histogram(HistogramOptions(16)))},
      {"LogHistogram", made(LogHistogram(LogHistogramOptions(5).over({0})))},
      {"LogHistogram", made(LogHistogram(LogHistogramOptions().over_all(true)))},
      {"Blocks", made(Blocks(4))},
      {"Quantiles", made(Quantiles(QuantilesOptions().at({0.1, 0.3}).k(300).seed(9).over({0})))},
      {"Covariance", made(Covariance(CovarianceOptions().over({0})))},
      {"Gram", made(Gram(GramOptions().over({0})))},
      {"TopK", made(TopK(TopKOptions(3).largest(false).over({0})))},
      {"Series(Moments, Max, Max)", made(Series(Moments(MomentsOptions().over({0})), Max(), Max()))},
      {"Every(Mean)", made(every(2, Mean()))},
      {"Over(Sum)", made(over({0}, Sum()))},
      {"Window(Mean)", made(window(3, Mean(MeanOptions().over({1}))))},
      {"Series(Every(Window(Max)), Over(Series(Min, Sum)))",
       made(Series(every(2, window(2, Max())), over({0}, Series(Min(), Sum()))))},
      {"Mean", made(parse("mean", ParseOptions().over({0})))},
      {"Series(Mean, Mean, Histogram, TopK)",
       made(parse("mean,mean,histogram:8:-2:2,top_k:2", ParseOptions().over({0})))},
  };
}

std::vector<at::Tensor> samples() {
  at::manual_seed(3);
  std::vector<at::Tensor> list;
  for (int i = 0; i < 9; ++i) list.push_back(at::randn({4, 3}));
  return list;
}

void check_same(const Sink& got, const Sink& want, const std::string& what) {
  BOOST_TEST_CONTEXT(what) {
    BOOST_TEST(got.describe() == want.describe());
    BOOST_TEST(got.count() == want.count());
    const auto a = got.results(), b = want.results();
    BOOST_TEST(a.names() == b.names(), boost::test_tools::per_element());
    for (const auto& [name, tensor] : b) {
      BOOST_TEST_CONTEXT(name) BOOST_TEST(close(a.at(name), tensor, 1e-6));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_restored_reduction_is_the_same_and_merges_as_one_stream) {
  const auto data = samples();
  for (const auto& [recipe, make] : all()) {
    const auto whole = make(), first = make(), second = make();
    for (std::size_t i = 0; i < data.size(); ++i) {
      whole->update(data[i]);
      (i < 4 ? *first : *second).update(data[i]);
    }
    const auto saved = torchtap::core::save(*first);
    BOOST_REQUIRE(saved.has_value());
    BOOST_TEST(saved->recipe == recipe);
    const auto restored = torchtap::core::make_sink(restore(*saved));
    check_same(*restored, *first, recipe + ", restored");
    BOOST_TEST(torchtap::core::save(*restored)->bytes == saved->bytes, recipe << " is saved as it was");
    restored->merge(*torchtap::core::make_sink(restore(*torchtap::core::save(*second))));
    check_same(*restored, *whole, recipe + ", merged");
    // Further updates work as well.
    const auto goes_on = torchtap::core::make_sink(restore(*saved));
    for (std::size_t i = 4; i < data.size(); ++i) goes_on->update(data[i]);
    check_same(*goes_on, *whole, recipe + ", updated");
  }
}

BOOST_AUTO_TEST_CASE(a_state_of_a_device_that_is_not_there_comes_to_the_cpu,
                     *torchtap_test::only_where([] { return !at::hasCUDA(); }, "the device is there")) {
  const std::string on_cpu("\0\0\0\0\xFF\xFF\xFF\xFF", 8), on_cuda("\1\0\0\0\3\0\0\0", 8);  // type and index
  const std::vector<std::pair<std::string, Make>> some{{"Mean", made(Mean(MeanOptions().over({0})))},
                                                       {"Moments", made(Moments(MomentsOptions().over({0})))},
                                                       {"Norm", made(Norm(NormOptions().over({0})))}};
  for (const auto& [recipe, make] : some) {
    BOOST_TEST_CONTEXT(recipe) {
      const auto sink = make();
      for (const auto& sample : samples()) sink->update(sample);
      auto saved = *torchtap::core::save(*sink);
      std::string bytes(saved.bytes.begin(), saved.bytes.end());
      int places = 0;
      for (std::size_t at = 0; (at = bytes.find(on_cpu, at)) != std::string::npos; at += 8) {
        bytes.replace(at, 8, on_cuda);
        ++places;
      }
      saved.bytes.assign(bytes.begin(), bytes.end());
      BOOST_TEST(places > 1);
      const auto restored = torchtap::core::make_sink(restore(saved));
      restored->update(samples()[0]);
      sink->update(samples()[0]);
      check_same(*restored, *sink, recipe);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_reservoir_is_restored) {
  Reservoir reservoir(ReservoirOptions(5).seed(4).over({0}));
  for (const auto& sample : samples()) reservoir.update(sample);
  const auto sink = make_sink(reservoir);
  check_same(*torchtap::core::make_sink(restore(*torchtap::core::save(*sink))), *sink, "Reservoir");
}

BOOST_AUTO_TEST_CASE(a_reservoir_goes_on_after_a_reload) {
  const auto rows = at::arange(4000, at::kLong).unsqueeze(1);
  const auto fed = [&](auto reservoir, std::int64_t from, std::int64_t size) {
    reservoir.update(rows.narrow(0, from, size));
    return reservoir;
  };
  for (const std::int64_t seen : {2, 5, 6, 40, 1000}) {
    for (const bool merged : {false, true}) {
      auto one = fed(Reservoir(ReservoirOptions(5).seed(4).over({0})), 0, seen);
      if (merged) one.merge(fed(Reservoir(ReservoirOptions(5).seed(7).over({0})), seen, 300));
      const auto whole = torchtap::core::make_sink(one);
      const auto reloaded = torchtap::core::make_sink(restore(*torchtap::core::save(*whole)));
      for (std::int64_t from = 2000; from < 4000; from += 50) {
        whole->update(rows.narrow(0, from, 50));
        reloaded->update(rows.narrow(0, from, 50));
      }
      check_same(*reloaded, *whole, c10::str(seen, " rows", merged ? ", merged" : ""));
    }
  }
}

BOOST_AUTO_TEST_CASE(what_has_seen_nothing_is_restored) {
  for (const auto& [recipe, make] : all()) {
    const auto restored = torchtap::core::make_sink(restore(*torchtap::core::save(*make())));
    BOOST_TEST(restored->count() == 0, recipe);
    BOOST_TEST(restored->results().empty(), recipe);
    BOOST_TEST(restored->describe() == make()->describe());
  }
}

BOOST_AUTO_TEST_CASE(what_holds_a_callable_has_no_recipe) {
  const auto twice = [](const at::Tensor& x) { return x * 2; };
  const auto sum = [](const at::Tensor& a, const at::Tensor& b) { return a + b; };
  const auto none = [](const auto& reduction) {
    return !torchtap::core::save(*make_sink(reduction)).has_value();
  };
  BOOST_TEST(none(sum));
  BOOST_TEST(none(map(twice, Mean())));
  BOOST_TEST(none(Series(Mean(), map(twice, Mean()))));
  BOOST_TEST(none(every(2, map(twice, Mean()))));
  BOOST_TEST(none(window(2, Series(Mean(), map(twice, Mean())))));
}

BOOST_AUTO_TEST_CASE(other_recipes_and_damaged_states_are_refused) {
  Series series(Moments{}, Max{});
  series.update(at::ones({2}));
  const SavedSink saved = *torchtap::core::save(*make_sink(series));
  for (const std::string recipe :
       {"", "Median", "Series", "Series()", "Series(Moments, Max", "Series(Moments,Max)", "Mean(Max)",
        "Every", "Every(Mean, Max)", "Mean ", "Series(Moments, Max))"}) {
    BOOST_TEST_CONTEXT(recipe) BOOST_CHECK_THROW(restore({recipe, saved.bytes}), c10::ValueError);
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "Every(";
  BOOST_CHECK_THROW(restore({deep, saved.bytes}), c10::ValueError);
  for (std::size_t size = 0; size < saved.bytes.size(); ++size) {
    BOOST_CHECK_THROW(restore({saved.recipe, saved.bytes.substr(0, size)}), c10::Error);
  }
  BOOST_CHECK_THROW(restore({saved.recipe, saved.bytes + "x"}), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(a_device_of_an_unknown_type_is_refused) {
  Sum sum;
  sum.update(at::ones({2}));
  SavedSink saved = *torchtap::core::save(*make_sink(sum));
  const std::string float_on_cpu("\6\0\0\0\0\0\0\0\xFF\xFF\xFF\xFF", 12);  // dtype, type, index
  const std::size_t at = saved.bytes.find(float_on_cpu);
  BOOST_REQUIRE(at != std::string::npos);
  for (const char* type : {"\xFF\xFF\xFF\xFF", "\x7F\0\0\0", "\x00\1\0\0"}) {  // the last is 0 in a byte
    saved.bytes.replace(at + 4, 4, type, 4);
    BOOST_CHECK_EXCEPTION(restore(saved), c10::ValueError,
                          torchtap_test::says({"restore", "of type number"}));
  }
}

BOOST_AUTO_TEST_SUITE_END()
