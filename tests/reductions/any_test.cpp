// Tests reductions whose types are known only at run time, and reductions of one's own that share the pass.

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>
#include <reductions/support.hpp>

#include <algorithm>

#include <torchtap/reductions/reductions.hpp>

BOOST_AUTO_TEST_SUITE(any)

using namespace torchtap;
using namespace torchtap::reductions;

namespace {

/// The largest difference within one sample.
class Range : public FromSummary<Range> {
 public:
  void fold_summary(const Summary& sample) {
    ++folded;
    largest_ = std::max(largest_, sample.max - sample.min);
    zeros_ += sample.zeros;
  }
  void merge(const Range& other) {
    largest_ = std::max(largest_, other.largest_);
    zeros_ += other.zeros_;
    folded += other.folded;
  }
  std::int64_t count() const { return folded; }
  core::Results results() const {
    if (folded == 0) return {};
    return {{"value", at::scalar_tensor(largest_, at::kDouble)},
            {"zeros", at::scalar_tensor(zeros_, at::kLong)}};
  }

  std::int64_t folded = 0;

 private:
  double largest_ = 0;
  std::int64_t zeros_ = 0;
};

double value(const core::Results& results, const std::string& name) {
  return results.at(name).item<double>();
}

}  // namespace

BOOST_AUTO_TEST_CASE(holds_any_reduction) {
  Any sum = Sum();
  Any peak = [](const at::Tensor& a, const at::Tensor& x) { return at::max(a, x); };
  const at::Tensor x = at::tensor({1.0, -2.0, 3.0});
  for (Any* const one : {&sum, &peak}) {
    one->update(x);
    one->update(x.flip(0));
  }
  BOOST_TEST(close(sum.results().at("value"), x + x.flip(0), 0.0));
  BOOST_TEST(close(peak.results().at("value"), at::max(x, x.flip(0)), 0.0));
  BOOST_REQUIRE(sum.get<Sum>() != nullptr);
  BOOST_TEST(sum.get<Sum>()->count() == 2);
  BOOST_TEST(sum.get<Mean>() == nullptr);
  // A copy shares nothing.
  Any copy = sum;
  copy.update(x);
  BOOST_TEST(copy.count() == 3);
  BOOST_TEST(sum.count() == 2);
  BOOST_TEST(sum.fresh().count() == 0);
  BOOST_CHECK_THROW(sum.merge(peak), c10::TypeError);
  BOOST_CHECK_THROW(Any(std::unique_ptr<core::Sink>()), c10::ValueError);
  // An Any in an Any, or in a sink, is the reduction itself.
  const Any again(core::make_sink(copy));
  BOOST_TEST(again.get<Sum>()->count() == 3);
}

BOOST_AUTO_TEST_CASE(checks_without_changing) {
  Any mean = Mean();
  mean.update(at::ones({3}));
  BOOST_CHECK_THROW(mean.check(at::ones({4})), c10::ValueError);
  mean.check(at::ones({3}));
  BOOST_TEST(mean.count() == 1);
  Any own = [](const at::Tensor& a, const at::Tensor& x) { return a + x; };  // only an update can tell
  own.update(at::ones({3}));
  BOOST_CHECK_THROW(own.check(at::ones({4})), c10::Error);
  own.check(at::ones({3}));
  BOOST_TEST(own.count() == 1);
}

BOOST_AUTO_TEST_CASE(a_series_of_any_length) {
  BOOST_CHECK_THROW(AnySeries({}), c10::ValueError);
  const Any folded = [](const at::Tensor& a, const at::Tensor& y) { return a + y; };
  AnySeries series({Moments(MomentsOptions().over_all(true)), Count(), folded});
  BOOST_TEST(series.size() == 3);
  BOOST_CHECK_THROW(series.at(3), c10::IndexError);
  const at::Tensor x = at::randn({6});
  series.update(x);
  BOOST_TEST(value(series.results(), "count.elements") == 6);
  BOOST_TEST(close(series.results().at("callable.value"), x, 0.0));
  // What one refuses reaches none; a callable can tell only when it is updated.
  BOOST_CHECK_THROW(series.update(at::randn({7})), c10::Error);
  BOOST_CHECK_THROW(series.check(at::randn({7})), c10::Error);
  BOOST_TEST(value(series.results(), "count.elements") == 6);
  BOOST_TEST(series.count() == 6);
}

BOOST_AUTO_TEST_CASE(own_reductions_share_the_pass) {
  for (const auto type : {at::kFloat, at::kHalf, at::kDouble, at::kLong, at::kBool}) {
    for (const std::int64_t n : {10, 100000}) {
      const at::Tensor x = at::randn({n}).mul(5).round().to(type);
      Series series(Range{}, Moments(MomentsOptions().over_all(true)));
      series.update(x);
      const at::Tensor wide = x.to(at::kDouble);
      BOOST_TEST(value(series.results(), "range.value") == (wide.max() - wide.min()).item<double>());
      BOOST_TEST(series.results().at("range.zeros").item<std::int64_t>() ==
                 (x == 0).sum().item<std::int64_t>());
    }
  }
  // Alone, of a view that the kernels cannot read, and of one element.
  Range range;
  range.update(at::arange(10, at::kFloat).view({2, 5}).t());
  range.update(at::_neg_view(at::tensor({1.0F, 3.5F})));
  range.update(at::scalar_tensor(2.0));
  BOOST_TEST(value(range.results(), "value") == 9.0);
  BOOST_TEST(range.count() == 3);
}

BOOST_AUTO_TEST_CASE(what_an_own_reduction_cannot_take_reaches_none) {
  Series series(Range{}, Sum());
  series.update(at::ones({3}));
  BOOST_CHECK_THROW(series.update(at::ones({3}, at::kComplexFloat)), c10::TypeError);  // a Sum would take it
  BOOST_CHECK_THROW(series.update(at::ones({4})), c10::ValueError);  // a Range would take it
  BOOST_TEST(series.get<Range>().folded == 1);
  BOOST_TEST(series.get<Sum>().count() == 1);
  Range alone;
  BOOST_CHECK_THROW(alone.update(at::ones({3}).to_sparse()), c10::TypeError);
  BOOST_CHECK_THROW(alone.check(at::Tensor()), c10::TypeError);
  BOOST_TEST(alone.count() == 0);
}

BOOST_AUTO_TEST_SUITE_END()
