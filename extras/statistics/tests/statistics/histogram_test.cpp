// Tests the results and guarantees of Histogram.

#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <sstream>
#include <tuple>

#include <torchtap/reductions/histogram.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(histogram_tests)

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

/// Counts by comparing every value with every edge.
at::Tensor counted(const at::Tensor& x, const at::Tensor& edges, bool last_inclusive) {
  const auto at_or_above = x.reshape({-1, 1}).ge(edges);
  const auto in = at_or_above.slice(1, 0, -1).logical_and(at_or_above.slice(1, 1).logical_not());
  auto counts = in.sum(0);
  if (last_inclusive) counts[-1] += x.eq(edges[-1]).sum();
  return counts;
}

void check_same(const Histogram& got, const Histogram& want) {
  BOOST_TEST(got.count() == want.count());
  for (const auto& [name, tensor] : want.results()) {
    BOOST_TEST_CONTEXT(name) BOOST_TEST(close(got.results().at(name), tensor, 0.0));
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(histogram)

BOOST_AUTO_TEST_CASE(edges_belong_to_one_bin) {
  Histogram histogram{HistogramOptions(10, 0, 1).over_all(true)};
  const auto edges = histogram.edges();
  histogram.update(edges);
  BOOST_TEST(histogram.counts().equal(counted(edges, edges, true)));
  BOOST_TEST(histogram.counts().equal(at::tensor({1, 1, 1, 1, 1, 1, 1, 1, 1, 2}, at::kLong)));
  histogram.update(numbers({-0.001, 1.001, -kInf, kInf, kInf, kNaN}));
  BOOST_TEST(histogram.underflow().item<std::int64_t>() == 2);
  BOOST_TEST(histogram.overflow().item<std::int64_t>() == 3);
  BOOST_TEST(histogram.nan().item<std::int64_t>() == 1);
  BOOST_TEST(histogram.count() == 17);
}

BOOST_AUTO_TEST_CASE(senseless_options_are_refused) {
  BOOST_CHECK_THROW(Histogram(HistogramOptions(0, 0, 1)), c10::ValueError);
  BOOST_CHECK_THROW(Histogram(HistogramOptions(1)), c10::ValueError);
  BOOST_CHECK_THROW(Histogram(HistogramOptions(-3)), c10::ValueError);
  BOOST_CHECK_THROW(Histogram(HistogramOptions(4, 1, 1)), c10::ValueError);
  BOOST_CHECK_THROW(Histogram(HistogramOptions(4, 2, 1)), c10::ValueError);
  BOOST_CHECK_THROW(Histogram(HistogramOptions(4, 0, kInf)), c10::ValueError);
  BOOST_CHECK_THROW(Histogram(HistogramOptions(4, kNaN, 1)), c10::ValueError);
  Histogram one{HistogramOptions(4, 0, 1)};
  BOOST_CHECK_THROW(one.merge(Histogram(HistogramOptions(4, 0, 2))), c10::ValueError);
  BOOST_CHECK_THROW(one.merge(Histogram(HistogramOptions(4))), c10::ValueError);
  BOOST_TEST(one.describe() == "Histogram(4, 0, 1)");
  BOOST_TEST(Histogram(HistogramOptions(4).over({0})).describe() == "Histogram(4, over=[0])");
}

BOOST_DATA_TEST_CASE(a_growing_range_covers_everything, bdata::make({2, 3, 5, 64, 101}), bins) {
  at::manual_seed(bins);
  // Drifts over many scales: first narrow, then wide, and of both signs.
  const auto x = at::randn({300}, at::kDouble) * at::pow(10.0, at::linspace(-6, 3, 300, at::kDouble)) + 0.01;
  const auto whole = fed(Histogram(HistogramOptions(bins).over_all(true)), x, 300);
  BOOST_TEST(whole.counts().equal(counted(x, whole.edges(), false)));
  BOOST_TEST(whole.counts().sum().item<std::int64_t>() == 300);
  BOOST_TEST(whole.edges()[0].item<double>() <= x.min().item<double>());
  BOOST_TEST(whole.edges()[-1].item<double>() > x.max().item<double>());
  const double width = (whole.edges()[1] - whole.edges()[0]).item<double>();
  BOOST_TEST(width * bins <= 4.1 * bins / (bins - 1.0) * (x.max() - x.min()).item<double>());
  for (const std::int64_t batch : {1, 7, 100}) {
    check_same(fed(Histogram(HistogramOptions(bins).over_all(true)), x, batch), whole);
    check_same(fed(Histogram(HistogramOptions(bins).over_all(true)), x.flip({0}), batch), whole);
  }
  for (const std::int64_t split : {1, 50, 150, 299}) {
    auto left = fed(Histogram(HistogramOptions(bins).over_all(true)), x.narrow(0, 0, split), 9);
    auto right = fed(Histogram(HistogramOptions(bins).over_all(true)), x.narrow(0, split, 300 - split), 9);
    auto other = right;
    other.merge(left);
    left.merge(right);
    check_same(left, whole);
    check_same(other, whole);
  }
}

BOOST_AUTO_TEST_CASE(kept_elements_share_a_growing_range) {
  at::manual_seed(1);
  const auto x = at::randn({40, 3}, at::kDouble) * numbers({1, 10, 100});
  Histogram elementwise{HistogramOptions(16)};
  for (const auto& row : x.unbind(0)) elementwise.update(row);
  check_same(elementwise, [&] {
    Histogram other{HistogramOptions(16)};
    for (const auto& row : x.unbind(0)) other.update(row);
    return other;
  }());
  BOOST_TEST(elementwise.counts().sizes() == (at::IntArrayRef{3, 16}));
  for (std::int64_t i = 0; i < 3; ++i) {
    BOOST_TEST(elementwise.counts()[i].equal(counted(x.select(1, i), elementwise.edges(), false)));
  }
}

BOOST_AUTO_TEST_CASE(a_growing_range_survives_anything) {
  const double largest = std::numeric_limits<double>::max(),
               least = std::numeric_limits<double>::denorm_min();
  for (const std::int64_t bins : {2, 3, 7, 64}) {
    for (const auto& values : std::vector<std::vector<double>>{{0},
                                                               {0, 0, 0},
                                                               {5},
                                                               {-5, -5},
                                                               {kNaN},
                                                               {kInf, -kInf},
                                                               {kNaN, kInf, 3, -kInf},
                                                               {1e300, -1e300},
                                                               {largest, -largest},
                                                               {largest, -1e-20, 1e-20},
                                                               {largest, -least, 3, -largest, 0, -0.0},
                                                               {1e308, -1e308, -1e-17, least},
                                                               {least, 0, -least},
                                                               {least, 1},
                                                               {1, std::nextafter(1, 2)},
                                                               {1e15, 1e15 + 1, 1e15 + 2},
                                                               {-1, 1},
                                                               {-1e-30, 1e30},
                                                               {0.5, kNaN, 0.25, kInf, 1e6}}) {
      const auto x = numbers(values);
      const auto whole = fed(Histogram(HistogramOptions(bins).over_all(true)), x, 100);
      const auto each = fed(Histogram(HistogramOptions(bins).over_all(true)), x, 1);
      const auto total = x.isfinite().sum().item<std::int64_t>();
      BOOST_TEST(whole.counts().sum().item<std::int64_t>() == total);
      BOOST_TEST(each.counts().sum().item<std::int64_t>() == total);
      BOOST_TEST(whole.nan().item<std::int64_t>() == x.isnan().sum().item<std::int64_t>());
      BOOST_TEST(whole.overflow().item<std::int64_t>() == x.eq(kInf).sum().item<std::int64_t>());
      BOOST_TEST(whole.underflow().item<std::int64_t>() == x.eq(-kInf).sum().item<std::int64_t>());
      if (total > 1) BOOST_TEST(whole.counts().equal(each.counts()));
      BOOST_TEST(whole.edges().isfinite().all().item<bool>());
      const at::Tensor widths = whole.edges().diff();
      BOOST_TEST(widths.ge(0).all().item<bool>());
      if (widths.gt(0).all().item<bool>()) {  // no bin lies beyond the largest number
        BOOST_TEST(whole.counts().equal(counted(x.masked_select(x.isfinite()), whole.edges(), true)));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_growing_range_goes_on_after_a_reload) {
  at::manual_seed(3);
  const auto x = at::randn({100}, at::kDouble) * at::arange(100, at::kDouble);
  auto one = fed(Histogram(HistogramOptions(11).over_all(true)), x.narrow(0, 0, 40), 7);
  std::stringstream stream;
  {
    core::OutputArchive archive(stream);
    archive(one);
  }
  Histogram loaded{HistogramOptions(2, 0, 1)};
  core::InputArchive archive(stream);
  archive(loaded);
  for (const auto& part : x.narrow(0, 40, 60).split(7)) loaded.update(part);
  check_same(loaded, fed(Histogram(HistogramOptions(11).over_all(true)), x, 100));
}

namespace {

/// Values between about -100 and 100, and NaN and infinities if the type has them.
at::Tensor values_of(at::ScalarType type, at::IntArrayRef sizes) {
  at::Tensor x = at::randn(sizes, at::kDouble) * 30;
  if (!c10::isIntegralType(type, /*includeBool=*/true)) {
    for (const double odd : {kNaN, kInf, -kInf}) x.masked_fill_(at::rand(sizes) < 0.02, odd);
  } else if (type == at::kByte) {
    x.abs_();
  }
  return x.clamp(-120, 120).to(type);
}

std::vector<HistogramOptions> ranges() {
  return {HistogramOptions(16, -64, 64), HistogramOptions(10, -1, 7), HistogramOptions(300, 0, 1),
          HistogramOptions(16), HistogramOptions(300)};
}

}  // namespace

BOOST_DATA_TEST_CASE(any_type_and_shape_counts_as_by_operations,
                     bdata::make({at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kChar,
                                  at::kShort, at::kInt, at::kLong, at::kBool}),
                     type) {
  at::manual_seed(7);
  struct Shaped {
    std::vector<std::int64_t> sizes, over;
    bool all;
  };
  for (const auto& [sizes, over, all] : std::vector<Shaped>{{{1, 100}, {}, false},
                                                            {{1, 100}, {}, true},
                                                            {{1, 100}, {0}, false},
                                                            {{5, 67}, {0}, false},
                                                            {{5, 67}, {1}, false},
                                                            {{5, 67}, {-1}, false},
                                                            {{3, 4, 5, 6}, {0, 1}, false},
                                                            {{3, 4, 5, 6}, {1, 0}, false},
                                                            {{3, 4, 5, 6}, {0, 2}, false},
                                                            {{33, 1000}, {}, false},
                                                            {{33, 1000}, {0}, false},
                                                            {{2, 20000}, {}, true},
                                                            {{1}, {}, false},
                                                            {{}, {}, false},
                                                            {{0}, {}, false},
                                                            {{4, 0}, {0}, false}}) {
    for (auto options : ranges()) {
      options.over(over).over_all(all);
      Histogram fast(options), slow(options);
      for (int i = 0; i < 4; ++i) {  // the first update differs from others
        const at::Tensor x = values_of(type, sizes);
        const at::Tensor strided = i == 3 ? at::stack({x, x}, -1).select(-1, 1) : x;
        fast.update(strided);
        slow.update(by_operations(x.to(at::kDouble)));
      }
      BOOST_TEST_CONTEXT(fast.describe() << " of " << at::IntArrayRef(sizes)) check_same(fast, slow);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_range_grows_in_memory_as_by_operations) {
  at::manual_seed(8);
  for (const std::int64_t bins : {2, 3, 7, 64}) {
    for (int round = 0; round < 20; ++round) {
      const double offset = round % 3 == 0 ? 0.0 : std::pow(10.0, round - 10);
      Histogram fast{HistogramOptions(bins).over_all(true)}, slow{HistogramOptions(bins).over_all(true)};
      for (int i = 0; i < 12; ++i) {
        const at::Tensor x = at::randn({5}, at::kDouble) * std::pow(10.0, 4 * i - 300 * (round % 2)) + offset;
        fast.update(x);
        slow.update(by_operations(x.to(at::kDouble)));
        check_same(fast, slow);
      }
    }
  }
  const double largest = std::numeric_limits<double>::max(),
               least = std::numeric_limits<double>::denorm_min();
  for (const auto& values : std::vector<std::vector<double>>{{0},
                                                             {least, -least},
                                                             {5, 5},
                                                             {1, std::nextafter(1, 2)},
                                                             {largest, -largest},
                                                             {1e300, -1e290},
                                                             {kNaN, kInf}}) {
    Histogram fast{HistogramOptions(5)}, slow{HistogramOptions(5)};
    for (int i = 0; i < 3; ++i) {
      fast.update(numbers(values));
      slow.update(by_operations(numbers(values)));
    }
    check_same(fast, slow);
  }
}

BOOST_AUTO_TEST_CASE(concentrated_samples_count_as_by_operations) {
  at::manual_seed(9);
  const at::Tensor normal = at::randn({70001});
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong}) {
    for (const at::Tensor& kind :
         {normal.relu(), at::zeros_like(normal), normal * 1e-5, at::full_like(normal, -3),
          (normal * 2).round(), at::full_like(normal, kNaN)}) {
      if (type == at::kLong && kind.isnan().any().item<bool>()) continue;
      const at::Tensor all = kind.to(type);
      for (const std::int64_t n : {1, 17, 100, 1000, 70001}) {
        const at::Tensor x = all.narrow(0, all.numel() - n, n);
        for (auto options :
             {HistogramOptions(64, -4, 4), HistogramOptions(100, -4, 4), HistogramOptions(64)}) {
          options.over_all(true);
          Histogram fast(options), slow(options);
          for (const auto& sample : {x, x, normal.to(type)}) {  // twice, then others
            fast.update(sample);
            slow.update(by_operations(sample.to(at::kDouble)));
          }
          BOOST_TEST_CONTEXT(fast.describe() << " of " << x.toString() << n) check_same(fast, slow);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(concentrated_rows_count_as_by_operations) {
  at::manual_seed(10);
  const at::Tensor normal = at::randn({6000});
  at::Tensor with_nan = at::zeros({6000});
  with_nan[4] = kNaN;
  for (const at::Tensor& kind : {normal.relu(), at::zeros({6000}), at::full({6000}, -3), with_nan}) {
    for (const std::int64_t rows : {1, 10, 600}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        Histogram fast(HistogramOptions(64).over({0})), slow(HistogramOptions(64).over({0}));
        for (const at::Tensor& sample : {kind, kind, normal}) {
          const at::Tensor x = sample.view({600, 10}).narrow(0, 0, rows).to(type);
          fast.update(x);
          slow.update(by_operations(x.to(at::kDouble)));
        }
        BOOST_TEST_CONTEXT(rows << " rows of " << type) check_same(fast, slow);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused_after_fast_updates) {
  Histogram elementwise{HistogramOptions(8, 0, 1)};
  elementwise.update(at::rand({3, 4}));
  elementwise.update(at::rand({3, 4}));
  BOOST_CHECK_THROW(elementwise.update(at::rand({4, 3})), c10::ValueError);
  BOOST_CHECK_THROW(elementwise.update(at::rand({12})), c10::ValueError);
  BOOST_CHECK_THROW(elementwise.check(at::rand({12})), c10::ValueError);
  BOOST_CHECK_THROW(elementwise.update(at::rand({3, 4}).to(at::kComplexFloat)), c10::TypeError);
  BOOST_TEST(elementwise.count() == 2);
  BOOST_TEST(elementwise.counts().sum().item<std::int64_t>() == 24);
  elementwise.update(at::rand({3, 4}, at::kDouble));  // another dtype is welcome
  BOOST_TEST(elementwise.count() == 3);
  Histogram rows{HistogramOptions(8, 0, 1).over({0})};
  rows.update(at::rand({3, 4}));
  rows.update(at::rand({1, 4}));
  BOOST_CHECK_THROW(rows.update(at::rand({4})), c10::ValueError);
  BOOST_CHECK_THROW(rows.update(at::rand({4, 3})), c10::ValueError);
  BOOST_TEST(rows.count() == 4);
}

BOOST_AUTO_TEST_CASE(samples_of_any_shape_are_counted_over_all) {
  at::manual_seed(4);
  const auto a = at::randn({4, 3}, at::kDouble), b = at::randn({7}, at::kDouble),
             c = at::randn({}, at::kDouble);
  Histogram histogram{HistogramOptions(9, -3, 3).over_all(true)};
  for (const auto& sample : {a, b, c}) histogram.update(sample);
  const at::Tensor all = at::cat({a.view(-1), b, c.view(-1)});
  BOOST_TEST(close(histogram.counts(), all.histc(9, -3, 3), 0.0));
  BOOST_CHECK(histogram.counts().scalar_type() == at::kLong);
}

BOOST_AUTO_TEST_CASE(elementwise_histograms_do_not_depend_on_the_order_in_memory) {
  at::manual_seed(0);
  const auto channels_last = [](const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); };
  const auto last_first = [](const at::Tensor& x) {
    return x.permute({3, 0, 1, 2}).contiguous().permute({1, 2, 3, 0});
  };
  const auto reversed = [](const at::Tensor& x) {
    return x.permute({3, 2, 1, 0}).contiguous().permute({3, 2, 1, 0});
  };
  // A slice of the channels of a channels-last sample.
  const auto sliced = [&](const at::Tensor& x) {
    return channels_last(at::cat({x, x, x}, 1)).slice(1, 0, x.size(1));
  };
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte}) {
    for (const auto& options : {HistogramOptions(8, -2, 2), HistogramOptions(8)}) {
      for (const std::vector<std::int64_t>& sizes :
           {std::vector<std::int64_t>{2, 3, 4, 5}, std::vector<std::int64_t>{1, 37, 3, 7},
            std::vector<std::int64_t>{3, 40, 25, 33}}) {
        Histogram contiguous(options), mixed(options);
        for (const std::function<at::Tensor(const at::Tensor&)>& reorder :
             {std::function<at::Tensor(const at::Tensor&)>(channels_last),
              {last_first},
              {reversed},
              {sliced}}) {
          const at::Tensor x = at::randn(sizes).abs_().to(type), other = reorder(x);
          BOOST_TEST_REQUIRE(!other.is_contiguous());
          contiguous.update(x);
          mixed.update(other);
        }
        for (const auto& [name, tensor] : contiguous.results())
          BOOST_TEST(mixed.results().at(name).equal(tensor), name << ' ' << type << ' ' << options.growing());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(histograms_of_millions_of_integers) {
  at::manual_seed(0);
  for (const auto type : {at::kLong, at::kInt, at::kShort, at::kByte}) {
    const at::Tensor x = at::randint(0, 100, {(1 << 21) + 7}).to(type);
    Histogram histogram(HistogramOptions(10, 0, 100).over_all(true));
    histogram.update(x);
    BOOST_TEST(histogram.counts().to(at::kDouble).equal(at::histc(x.to(at::kDouble), 10, 0, 100)), type);
  }
}

BOOST_AUTO_TEST_CASE(values_on_an_edge_count_where_the_edge_says) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const auto& [bins, low, high] :
         {std::tuple{64, -4.0, 4.0}, {10, 0.0, 1.0}, {7, -1e-3, 1e3}, {3, 1e6, 1e6 + 1}}) {
      Histogram fast(HistogramOptions(bins, low, high).over_all(true)),
          slow(HistogramOptions(bins, low, high).over_all(true));
      const at::Tensor edges = fast.edges();
      const at::Tensor near =
          at::cat({edges, edges.to(at::kFloat).to(at::kDouble), edges * (1 + 1e-7), edges * (1 - 1e-7),
                   edges + 1e-12, edges - 1e-12, at::tensor({kNaN, kInf, -kInf, 0.0})});
      const at::Tensor x = near.to(type).repeat({20});
      fast.update(x);
      slow.update(by_operations(x));
      for (const auto& [name, tensor] : slow.results())
        BOOST_TEST(fast.results().at(name).equal(tensor), name << ' ' << bins);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
