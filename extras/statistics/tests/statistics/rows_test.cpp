// Tests properties of single statistics that keep rows, or products of rows.

#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <torchtap/core/context.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(rows_tests)

using namespace torchtap;
using namespace torchtap::reductions;
namespace bdata = boost::unit_test::data;
using torchtap_test::says;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

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

template <class R>
R fed(R reduction, const at::Tensor& rows, std::int64_t batch) {
  for (const auto& part : rows.split(batch)) reduction.update(part);
  return reduction;
}

template <class R, class Options>
void check_raise(Options options) {
  options.over({0}).non_finite(NonFinite::raise);
  R one{options};
  one.update(at::ones({3, 4}));
  const auto before = one.results();
  BOOST_CHECK_EXCEPTION(one.update(spoiled()), c10::ValueError, says({"42 NaN", "2 Inf", "[40, 4]", "omit"}));
  BOOST_CHECK_THROW(one.check(spoiled()), c10::ValueError);
  BOOST_TEST(one.count() == 3);
  for (const auto& [name, tensor] : one.results()) BOOST_TEST(close(tensor, before.at(name), 0.0));
  one.update(at::ones({3, 4}, at::kLong));
  BOOST_TEST(one.count() == 6);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(non_finite)

BOOST_AUTO_TEST_CASE(raise_names_how_many) {
  check_raise<Covariance>(CovarianceOptions());
  check_raise<Gram>(GramOptions());
  check_raise<TopK>(TopKOptions());
}

BOOST_DATA_TEST_CASE(propagate_is_what_torch_does, bdata::make({1, 7, 40}), batch) {
  for (const double bad : {kNaN, kInf, -kInf}) {
    auto x = spoiled().narrow(1, 2, 1).clone();
    x[11][0] = bad;
    BOOST_TEST(
        close(fed(TopK(TopKOptions(4).over({0})), x, batch).values(), std::get<0>(x.topk(4, 0)), 1e-12));
  }
}

BOOST_AUTO_TEST_CASE(rows_with_a_non_finite_feature_are_left_out_of_covariance) {
  const auto x = spoiled().narrow(1, 0, 3);
  const auto rows = x.index({x.isfinite().all(1)});
  BOOST_TEST(rows.size(0) == 36);
  for (const std::int64_t batch : {1, 7, 40}) {
    const auto covariance =
        fed(Covariance(CovarianceOptions().over({0}).non_finite(NonFinite::omit)), x, batch);
    BOOST_TEST(close(covariance.covariance(), at::cov(rows.t()), 1e-12));
    BOOST_TEST(close(covariance.mean(), rows.mean(0), 1e-12));
    BOOST_TEST(covariance.omitted().item<std::int64_t>() == 4);
    const auto gram = fed(Gram(GramOptions().over({0}).non_finite(NonFinite::omit)), x, batch);
    BOOST_TEST(close(gram.value(), at::mm(rows.t(), rows), 1e-12));
    BOOST_TEST(gram.results().at("omitted").item<std::int64_t>() == 4);
  }
}

BOOST_AUTO_TEST_CASE(top_k_without_non_finite_values) {
  const auto x = spoiled();
  const auto options = TopKOptions(3).over({0}).non_finite(NonFinite::omit);
  auto top = fed(TopK(options), x.narrow(0, 0, 13), 5);
  top.merge(fed(TopK(options), x.narrow(0, 13, 27), 4));
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto [values, indices] = x.select(1, i).nan_to_num(-kInf, -kInf, -kInf).topk(3);
    BOOST_TEST(close(top.values().select(1, i), values, 0.0));
    BOOST_TEST(top.indices().select(1, i).equal(indices));
  }
  BOOST_TEST(top.values().select(1, 3).isnan().all().item<bool>());
  BOOST_TEST(top.indices().select(1, 3).eq(-1).all().item<bool>());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_CASE(dimensions_are_the_users_choice) {
  at::manual_seed(3);
  const auto a = at::randn({4, 3, 5, 6}, at::kDouble);
  const auto b = at::randn({2, 3, 7, 1}, at::kDouble);
  const auto rows =
      at::cat({a.permute({0, 2, 3, 1}).reshape({-1, 3}), b.permute({0, 2, 3, 1}).reshape({-1, 3})});
  for (const auto& dims : std::vector<std::vector<std::int64_t>>{{0, 2, 3}, {-1, 0, -2}}) {
    TopK top{TopKOptions(4).over(dims)};
    Reservoir all{ReservoirOptions(1000).over(dims)};
    Covariance covariance{CovarianceOptions().over(dims)};
    for (const auto& batch : {a, b}) {
      top.update(batch);
      all.update(batch);
      covariance.update(batch);
    }
    BOOST_TEST(close(top.values(), std::get<0>(rows.topk(4, 0)), 0.0));
    BOOST_TEST(top.indices().equal(std::get<1>(rows.topk(4, 0))));
    BOOST_TEST(close(all.samples(), rows, 0.0));
    BOOST_TEST(close(covariance.covariance(), at::cov(rows.t()), 1e-12));
  }
}

BOOST_AUTO_TEST_CASE(a_stream_of_several_dtypes_is_promoted) {
  const auto half = at::full({3}, 0.5, at::kHalf), whole = at::full({3}, 7, at::kLong),
             real = at::full({3}, 0.1, at::kDouble);
  Reservoir reservoir;
  for (const auto& sample : {whole, half, real}) reservoir.update(sample);
  BOOST_TEST(close(reservoir.samples(), at::stack({whole.to(at::kDouble), half.to(at::kDouble), real}), 0.0));
}

BOOST_AUTO_TEST_CASE(the_dtype_of_top_values_is_that_of_the_samples) {
  TopK top;
  top.update(at::ones({2}, at::kHalf));
  BOOST_CHECK(top.results().begin()->second.scalar_type() == at::kHalf);
}

BOOST_AUTO_TEST_CASE(series_names_results_by_member) {
  Series series(TopK(TopKOptions(2)), Min());
  series.update(at::randn({3}));
  BOOST_TEST(
      series.results().names() == (std::vector<std::string>{"top_k.values", "top_k.indices", "min.value"}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(covariance_and_correlation) {
  at::manual_seed(8);
  const auto x = at::matmul(at::randn({50, 3}, at::kDouble), at::randn({3, 3}, at::kDouble)) + 1000;
  const auto covariance = fed(Covariance(CovarianceOptions().over({0})), x, 7);
  BOOST_TEST(close(covariance.correlation(), at::corrcoef(x.t()), 1e-9));
  BOOST_TEST(close(fed(Covariance(CovarianceOptions().over({0}).unbiased(false)), x, 7).covariance(),
                   at::cov(x.t(), 0), 1e-9));
  const auto z = at::randn({50, 3}, at::kComplexDouble);
  BOOST_TEST(close(fed(Covariance(CovarianceOptions().over({0})), z, 7).covariance(), at::cov(z.t()), 1e-12));
  BOOST_TEST(covariance.results().names() == (std::vector<std::string>{"mean", "covariance", "correlation"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(covariance_in_blocks_is_symmetric_and_right) {
  at::manual_seed(0);
  for (const std::int64_t size : {200, 256, 300, 512}) {
    const at::Tensor x = at::randn({700, size}).matmul(at::randn({size, size})) + 10;
    Covariance covariance(CovarianceOptions().over({0}));
    Gram gram(GramOptions().over({0}));
    for (const auto& part : x.split(250)) {
      covariance.update(part);
      gram.update(part);
    }
    const at::Tensor wide = x.to(at::kDouble);
    BOOST_TEST(close(covariance.covariance(), at::cov(wide.t()), 1e-9, 1e-9));
    BOOST_TEST(close(covariance.covariance(), covariance.covariance().t(), 1e-12, 1e-12));
    BOOST_TEST(close(gram.value(), wide.t().matmul(wide), 1e-9, 1e-9));
    BOOST_TEST(close(gram.value(), gram.value().t(), 1e-12, 1e-12));
  }
}

BOOST_AUTO_TEST_CASE(a_large_offset_leaves_a_covariance_within_its_bound) {
  at::manual_seed(7);
  for (const double offset : {1e6, 1e9, 1e11, 1e13}) {
    const at::Tensor x = at::randn({4000, 2}, at::kDouble) + offset;
    const at::Tensor want = at::cov((x - offset).t());  // exact differences
    for (const std::int64_t rows : {1, 40, 4000}) {
      const CovarianceOptions options = CovarianceOptions().over({0});
      Covariance merged(options);
      for (const at::Tensor& part : x.split(rows == 1 ? 20 : rows))
        merged.merge(fed(Covariance(options), part, rows));
      for (const at::Tensor& got : {fed(Covariance(options), x, rows).covariance(), merged.covariance()}) {
        const double off = (got / want - 1).diagonal().abs().amax().item<double>();
        BOOST_TEST(off < 0x1p-52 * offset, offset << ' ' << rows << ": " << off);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(numbers_near_the_largest_have_right_products_or_are_refused) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({600, 3}, at::kDouble);
  for (const double size : {0x1p300, 0x1p470, 0x1p-300}) {
    for (const std::int64_t batch : {1, 100, 600}) {
      const auto large = fed(Covariance(CovarianceOptions().over({0})), x * size, batch);
      BOOST_TEST(close(large.mean() / size, x.mean(0), 1e-9, 1e-12));
      BOOST_TEST(close(large.covariance() / size / size, at::cov(x.t()), 1e-9));
      BOOST_TEST(close(large.correlation(), at::corrcoef(x.t()), 1e-9));
      BOOST_TEST(close(fed(Gram(GramOptions().over({0})), x * size, batch).value() / size / size,
                       x.t().matmul(x), 1e-9));
    }
  }
  LinearCKA alike("other"), large("other");
  CrossCovariance cross("other");
  {
    const torchtap::core::Context named("other", x.slice(1, 0, 2) * 0x1p460);
    large.update(x * 0x1p460);
    cross.update(x * 0x1p460);
  }
  {
    const torchtap::core::Context named("other", x.slice(1, 0, 2));
    alike.update(x);
  }
  BOOST_TEST(close(large.value(), alike.value(), 1e-9));
  BOOST_TEST(cross.results().at("covariance").isfinite().all().item<bool>());
  // Beyond, a sample is refused, at once, and nothing changes.
  for (const std::int64_t rows : {1, 400}) {
    Covariance one(CovarianceOptions().over({0}));
    Gram gram(GramOptions().over({0}));
    one.update(x);
    gram.update(x);
    one.update(x.narrow(0, 0, 1));
    gram.update(x.narrow(0, 0, 1));
    const core::Results before = one.results(), of_gram = gram.results();
    for (const double size : {1e200, 1e308}) {
      at::Tensor wrong = x.narrow(0, 0, rows).clone();
      wrong[rows - 1][1] = -size;
      for (const at::Tensor& sample : {wrong, by_operations(wrong), at::real(at::complex(wrong, wrong))}) {
        BOOST_CHECK_EXCEPTION(one.update(sample), c10::ValueError,
                              says({"Covariance::update", c10::str(size), "scale them"}));
        BOOST_CHECK_EXCEPTION(one.check(sample), c10::ValueError, says({"Covariance::update"}));
        BOOST_CHECK_EXCEPTION(gram.update(sample), c10::ValueError, says({"Gram::update"}));
      }
      const torchtap::core::Context named("other", wrong.narrow(1, 1, 2));
      BOOST_CHECK_EXCEPTION(cross.update(x.narrow(0, 0, rows)), c10::ValueError,
                            says({"CrossCovariance::update", c10::str(size)}));
    }
    BOOST_TEST((one.results() == before));
    BOOST_TEST((gram.results() == of_gram));
  }
  // Infinities are none of these numbers.
  Covariance infinite(CovarianceOptions().over({0}));
  infinite.update(at::full({3, 2}, kInf, at::kDouble));
  BOOST_TEST(infinite.count() == 3);
}

BOOST_AUTO_TEST_CASE(top_k_keeps_the_earlier_of_equals) {
  const auto x = at::tensor({1, 3, 3, 2, 3, 1, 1}, at::kLong).unsqueeze(1);
  for (const std::int64_t batch : {1, 2, 7}) {
    for (std::int64_t split = 0; split <= 7; ++split) {
      auto top = fed(TopK(TopKOptions(4).over({0})), x.narrow(0, 0, split), batch);
      top.merge(fed(TopK(TopKOptions(4).over({0})), x.narrow(0, split, 7 - split), batch));
      BOOST_TEST(top.indices().view(-1).equal(at::tensor({1, 2, 4, 3}, at::kLong)));
      BOOST_TEST(top.values().view(-1).equal(at::tensor({3, 3, 3, 2}, at::kLong)));
    }
  }
  BOOST_CHECK_THROW(TopK(TopKOptions(0)), c10::ValueError);
}

/// Views whose numbers are negated when they are read, as the imaginary part of a conjugate is.
BOOST_AUTO_TEST_CASE(top_k_of_negated_views) {
  at::manual_seed(5);
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{7}, {4, 3}, {40, 70}}) {
    TopK of_views(TopKOptions(3).over({0})), of_copies(TopKOptions(3).over({0}));
    for (int i = 0; i < 3; ++i) {
      const at::Tensor x = at::randn(sizes);
      of_views.update(by_operations(x));
      of_copies.update(x);
    }
    BOOST_TEST((of_views.results() == of_copies.results()));
  }
}

BOOST_AUTO_TEST_SUITE(reservoir)

BOOST_AUTO_TEST_CASE(every_row_is_as_likely) {
  constexpr int kRuns = 4000, kRows = 12, kPlaces = 4;
  // One stream in batches, and two merged streams of unequal lengths.
  for (const std::int64_t split : {12, 9, 3}) {
    std::vector<int> chosen(kRows, 0);
    for (int run = 0; run < kRuns; ++run) {
      const auto x = at::arange(kRows, at::kLong).unsqueeze(1);
      auto one = fed(Reservoir(ReservoirOptions(kPlaces).seed(2 * run).over({0})), x.narrow(0, 0, split), 5);
      one.merge(fed(Reservoir(ReservoirOptions(kPlaces).seed(2 * run + 1).over({0})),
                    x.narrow(0, split, kRows - split), 5));
      const auto samples = one.samples();
      const auto indices = one.indices();
      BOOST_TEST_REQUIRE(samples.sizes() == (at::IntArrayRef{kPlaces, 1}));
      BOOST_TEST_REQUIRE(samples.view(-1).equal(indices));  // the values are the stream's indices
      std::set<std::int64_t> distinct;
      for (int i = 0; i < kPlaces; ++i) distinct.insert(indices[i].item<std::int64_t>());
      BOOST_TEST_REQUIRE(distinct.size() == kPlaces);
      for (const auto row : distinct) ++chosen[static_cast<std::size_t>(row)];
    }
    // Expected kRuns / 3 each with standard deviation 30; allow five of them.
    for (const int times : chosen) BOOST_TEST(std::abs(times - kRuns / 3) < 150);
  }
}

/// Many rows beside few places, and what follows after a merge, which is not where the latest choice was.
BOOST_AUTO_TEST_CASE(rows_that_are_skipped_are_as_likely) {
  constexpr int kRuns = 4000, kRows = 60, kPlaces = 3;
  for (const std::int64_t split : {60, 40, 7}) {
    std::vector<int> chosen(kRows, 0), of_first(kPlaces + 1, 0);
    const auto x = at::arange(kRows, at::kLong).unsqueeze(1);
    for (int run = 0; run < kRuns; ++run) {
      const auto seed = static_cast<std::uint64_t>(3 * run);
      auto one = fed(Reservoir(ReservoirOptions(kPlaces).seed(seed).over({0})), x.narrow(0, 0, split), 9);
      if (split != kRows) {
        const auto rest = x.narrow(0, split, kRows - split);
        one.merge(
            fed(Reservoir(ReservoirOptions(kPlaces).seed(seed + 1).over({0})), rest.narrow(0, 0, 10), 9));
        one = fed(one, rest.narrow(0, 10, rest.size(0) - 10), 9);
      }
      const auto indices = one.indices();
      const auto* const row = indices.data_ptr<std::int64_t>();
      for (int i = 0; i < kPlaces; ++i) ++chosen[static_cast<std::size_t>(row[i])];
      ++of_first[static_cast<std::size_t>(std::count_if(row, row + kPlaces, [](auto i) { return i < 20; }))];
    }
    // Each with probability 1 / 20, and binomial: 5 standard deviations are 69.
    for (const int times : chosen) BOOST_TEST(std::abs(times - kRuns / 20) < 69);
    // Together: of the first third there are 0 ... 3, C(20, j) C(40, 3 - j) / C(60, 3) as often.
    const double ways[] = {9880, 15600, 7600, 1140};
    for (std::size_t j = 0; j < of_first.size(); ++j) {
      const double share = ways[j] / 34220;
      BOOST_TEST(std::abs(of_first[j] - kRuns * share) < 5 * std::sqrt(kRuns * share * (1 - share)));
    }
  }
}

BOOST_AUTO_TEST_CASE(one_by_one_and_at_once_choose_alike) {
  const auto x = at::randn({5000}, at::kDouble);
  for (const std::int64_t places : {1, 8, 100}) {
    Reservoir at_once(ReservoirOptions(places).over_all(true)), in_parts = at_once;
    for (const auto& part : x.split(100)) in_parts.update(part);
    at_once.update(x);
    BOOST_TEST(in_parts.indices().equal(at_once.indices()));
    BOOST_TEST(in_parts.samples().equal(at_once.samples()));
    BOOST_TEST(x.index_select(0, at_once.indices()).equal(at_once.samples()));
  }
}

BOOST_AUTO_TEST_CASE(the_choice_depends_on_rows_and_seed_only) {
  const auto x = at::arange(1000, at::kFloat).unsqueeze(1);
  const auto of = [&](std::int64_t batch, std::uint64_t seed) {
    return fed(Reservoir(ReservoirOptions(16).seed(seed).over({0})), x, batch).samples();
  };
  BOOST_TEST(of(1, 3).equal(of(64, 3)));
  BOOST_TEST(of(1, 3).equal(of(1000, 3)));
  BOOST_TEST(!of(1, 3).equal(of(1, 4)));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
