// Tests reductions given by name against those constructed directly.

#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <sstream>

#include <torchtap/core/context.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(parsing)

using namespace torchtap;
using namespace torchtap::reductions;
namespace bdata = boost::unit_test::data;

namespace {

at::Tensor rows() {
  at::manual_seed(5);
  return at::randn({40, 3}, at::kDouble);
}

template <class R>
core::Results folded(R reduction) {
  for (const auto& part : rows().split(8)) reduction.update(part);
  return reduction.results();
}

void check_same(const core::Results& got, const core::Results& want, const std::string& prefix = "") {
  BOOST_REQUIRE(!want.empty());
  for (const auto& [name, tensor] : want) {
    BOOST_TEST_CONTEXT(prefix + name) {
      const at::Tensor* found = nullptr;
      for (const auto& [other, value] : got) {
        if (other == prefix + name) found = &value;
      }
      BOOST_REQUIRE(found != nullptr);
      BOOST_TEST(at::equal(*found, tensor));
    }
  }
}

std::string refusal(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "(nothing was thrown)";
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_is_the_reduction_of_that_name) {
  const auto over_rows = ParseOptions().over({0});
  const auto same = [&](const std::string& text, auto reduction) {
    BOOST_TEST_CONTEXT(text) {
      check_same(folded(parse(text, over_rows)), folded(reduction));
    }
  };
  same("sum", Sum(SumOptions().over({0})));
  same("mean", Mean(MeanOptions().over({0})));
  same("moments", Moments(MomentsOptions().over({0})));
  same("min", Min(MinOptions().over({0})));
  same("max", Max(MaxOptions().over({0})));
  same("abs_max", AbsMax(AbsMaxOptions().over({0})));
  same("norm", Norm(NormOptions().over({0})));
  same("norm:1", Norm(NormOptions().p(1).over({0})));
  same("count", Count(CountOptions().over({0})));
  same("first", First(FirstOptions().over({0})));
  same("last", Last(LastOptions().over({0})));
  same("ema:0.5", EMA(EMAOptions(0.5).over({0})));
  same("histogram:8", Histogram(HistogramOptions(8).over({0})));
  same("histogram:8:-1:1.5", Histogram(HistogramOptions(8, -1, 1.5).over({0})));
  same("log_histogram", LogHistogram(LogHistogramOptions().over({0})));
  same("log_histogram:5", LogHistogram(LogHistogramOptions(5).over({0})));
  same("quantiles", Quantiles(QuantilesOptions().over({0})));
  same("covariance", Covariance(CovarianceOptions().over({0})));
  same("gram", Gram(GramOptions().over({0})));
  same("top_k:3", TopK(TopKOptions(3).over({0})));
  same("reservoir:7", Reservoir(ReservoirOptions(7).over({0})));
}

BOOST_AUTO_TEST_CASE(several_are_a_series) {
  const auto everything = ParseOptions().over_all(true);
  const auto state = folded(parse("mean,max,norm:1,norm:2,histogram:8,top_k:3", everything));
  // Equal to the last bit: both read a sample once for all members.
  check_same(state, folded(Series(Mean(MeanOptions().over_all(true)), Max(MaxOptions().over_all(true)),
                                  Norm(NormOptions().p(1).over_all(true)), Norm(NormOptions().over_all(true)),
                                  Histogram(HistogramOptions(8).over_all(true)),
                                  TopK(TopKOptions(3).over_all(true)))));
  BOOST_TEST(state.size() == 11);
  BOOST_TEST(parse("mean,max").describe() == "Series(Mean, Max)");
  BOOST_TEST(parse("mean").describe() == "Mean");
}

BOOST_AUTO_TEST_CASE(words_apply_reductions_to_parts_of_the_stream) {
  const auto rows = ParseOptions().over({0});
  BOOST_TEST(parse("by(labels:10, moments,count)", rows).describe() ==
             "By(labels, 10, Series(Moments(over=[0]), Count(over=[0])))");
  BOOST_TEST(parse("sum, where( mask,by(expert,mean) )").describe() ==
             "Series(Sum, Where(mask, By(expert, Mean)))");
  check_same(folded(parse("every(2, mean)", rows)), folded(every(2, Mean(MeanOptions().over({0})))));
  check_same(folded(parse("window(3, mean)", rows)), folded(window(3, Mean(MeanOptions().over({0})))));
  const core::Context named("labels", at::arange(8).remainder(3));
  check_same(folded(parse("by(labels, mean)", rows)), folded(by("labels", Mean(MeanOptions().over({0})))));
}

/// Also in a program whose locale writes "0,25" and "1.000".
BOOST_AUTO_TEST_CASE(numbers_have_a_point_in_every_locale) {
  BOOST_TEST(parse("ema:0.25").describe() == "EMA(0.25)");
  BOOST_TEST(parse("norm:+2.5").describe() == "Norm(2.5)");
  BOOST_TEST(parse("norm:inf").describe() == "Norm(inf)");
  BOOST_TEST(parse("histogram:1024:-3.5:1e3").describe() == "Histogram(1024, -3.5, 1000)");
  BOOST_TEST(parse("reservoir:2000,top_k:1000").describe() == "Series(Reservoir(2000), TopK(1000))");
  BOOST_TEST(Blocks(1024).describe() == "Blocks(1024)");
  BOOST_TEST(refusal("ema:0,25").find("\"25\" is not a reduction") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_one_member_refuses_changes_none) {
  Any named = parse("mean,histogram:4:0:1,quantiles", ParseOptions().over({0}));
  named.update(at::ones({2, 3}));
  const core::Results before = named.results();
  BOOST_CHECK_THROW(named.update(at::ones({2, 4})), c10::ValueError);
  BOOST_CHECK_THROW(named.update(at::ones({2, 3}, at::kComplexFloat)), c10::TypeError);
  check_same(named.results(), before);
  BOOST_TEST(named.commutative());
  BOOST_TEST(!parse("mean,last").commutative());
}

BOOST_AUTO_TEST_CASE(merged_copied_saved_and_started_anew) {
  const auto parts = rows().split(8);
  Any whole = parse("mean,count", ParseOptions().over({0})), first = whole, second = whole.fresh();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    whole.update(parts[i]);
    (i < 2 ? first : second).update(parts[i]);
  }
  Any merged = first;
  merged.merge(second);
  BOOST_TEST(merged.count() == whole.count());
  BOOST_TEST(first.count() == 16);
  for (const auto& [name, tensor] : whole.results()) {
    for (const auto& [other, value] : merged.results()) {
      if (other == name) BOOST_TEST(at::allclose(value, tensor));
    }
  }
  std::stringstream stream;
  {
    core::OutputArchive archive(stream);
    archive(whole);
  }
  Any restored = whole.fresh();
  core::InputArchive archive(stream);
  archive(restored);
  check_same(restored.results(), whole.results());
  BOOST_CHECK_THROW(whole.merge(parse("mean")), c10::Error);
  BOOST_CHECK_THROW(whole.merge(parse("count,mean")), c10::Error);
}

BOOST_AUTO_TEST_CASE(a_sample_that_one_refuses_reaches_none) {
  Any named = parse("count,mean");
  named.update(at::ones({3}));
  BOOST_CHECK_THROW(named.update(at::ones({4})), c10::Error);  // Count takes any shape, Mean does not
  BOOST_TEST(named.count() == 1);
  for (const auto& [name, tensor] : named.results()) {
    if (name == "count.elements") BOOST_TEST(tensor.item<std::int64_t>() == 3);
  }
}

BOOST_DATA_TEST_CASE(
    what_is_wrong_is_said,
    bdata::make({"", "median", "mean,", "histogram", "histogram:8:1", "histogram:x", "mean:3", "top_k:2.5",
                 "norm:", "ema:1e", "by(labels)", "by(labels:x, mean)", "by(labels, mean", "mean)",
                 "where(mask:3, mean)", "every(0, mean)", "mean(sum)", "by(a, by(a, mean))",
                 "window(2, by(a, mean))"}) ^
        bdata::make({"no reduction was named", "\"median\" is not a reduction", "\"\" is not a reduction",
                     "expected histogram:BINS", "low end without a high one", "\"x\"",
                     "has 1 arguments; expected mean", "not a whole number", "not a number", "\"1e\"",
                     "expected by(NAME[:N], REDUCTION, …)", "\"x\" is not a number",
                     "at character 16; expected \")\"", "at character 5; expected nothing more",
                     "expected where(NAME, REDUCTION, …)", "positive number of samples",
                     "has parentheses; expected mean", "uses \"a\", too", "write by"}),
    text, message) {
  BOOST_TEST(refusal(text).find(message) != std::string::npos, refusal(text));
}

BOOST_AUTO_TEST_SUITE_END()
