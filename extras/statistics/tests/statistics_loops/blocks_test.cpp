// Tests what reductions do with many small samples: they gather rows, or update their state in plain loops.

#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <limits>
#include <sstream>

#include <torchtap/reductions/reductions.hpp>
#include <torchtap/statistics/detail/columns.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(blocks_tests)

using namespace torchtap;
using namespace torchtap::reductions;
namespace bdata = boost::unit_test::data;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The same numbers in memory that plain loops do not read.
at::Tensor strided(const at::Tensor& x) {
  return at::stack({x, x}, -1).select(-1, 0);
}

template <class R>
R fed(R reduction, const at::Tensor& rows, std::int64_t batch) {
  for (const auto& part : rows.split(batch)) reduction.update(part);
  return reduction;
}

template <class R>
std::string saved(const R& reduction) {
  std::ostringstream stream;
  {
    core::OutputArchive archive(stream);
    archive(reduction);
  }
  return stream.str();
}

template <class R>
R loaded(R reduction, const std::string& bytes) {
  std::istringstream stream(bytes);
  core::InputArchive archive(stream);
  archive(reduction);
  return reduction;
}

bool same(const core::Results& a, const core::Results& b) {
  if (a.names() != b.names()) return false;
  return std::all_of(a.begin(), a.end(), [&](const auto& one) {
    const auto& [name, tensor] = one;
    const at::Tensor& other = b.at(name);
    return tensor.dtype() == other.dtype() && tensor.sizes() == other.sizes() &&
           (tensor.is_floating_point()
                ? tensor.eq(other).logical_or(tensor.isnan().logical_and(other.isnan())).all()
                : tensor.eq(other).all())
               .template item<bool>();
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(blocks)

namespace {

/// Correlated rows far from zero.
at::Tensor features(std::int64_t rows, std::int64_t size, at::ScalarType dtype = at::kDouble) {
  at::manual_seed(7);
  const auto wide = at::isComplexType(dtype) ? at::kComplexDouble : at::kDouble;
  const auto x = at::randn({rows, size}, wide) + at::randn({rows, 1}, wide) + 3;
  return (at::isIntegralType(dtype, false) ? x * 10 : x).to(dtype);
}

Covariance covariance() {
  return Covariance(CovarianceOptions().over({0}));
}

Gram gram() {
  return Gram(GramOptions().over({0}));
}

void check(const Covariance& covariance, const Gram& gram, const at::Tensor& rows, double rtol = 1e-10) {
  const at::Tensor x = rows.to(rows.is_complex() ? at::kComplexDouble : at::kDouble);
  const double size = static_cast<double>(x.size(0)) * 20;
  BOOST_TEST(covariance.count() == x.size(0));
  BOOST_TEST(gram.count() == x.size(0));
  BOOST_TEST(close(covariance.mean(), x.mean(0), rtol));
  BOOST_TEST(close(gram.value(), x.t().conj().matmul(x), rtol, rtol * size));
  if (x.size(0) == 1) return;
  BOOST_TEST(close(covariance.covariance(), at::cov(x.t()).reshape({x.size(1), x.size(1)}), rtol, rtol * 20));
  if (!x.is_complex()) BOOST_TEST(close(covariance.correlation(), at::corrcoef(x.t()), rtol, rtol * 20));
}

}  // namespace

BOOST_DATA_TEST_CASE(any_batches_are_one_batch,
                     bdata::make({1, 5, 63, 64, 100, 127, 128, 129, 700}) * bdata::make({3, 130, 300}), batch,
                     size) {
  const at::Tensor x = features(700, size);
  check(fed(covariance(), x, batch), fed(gram(), x, batch), x);
}

BOOST_DATA_TEST_CASE(rows_of_any_dtype_are_gathered,
                     bdata::make({at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kChar,
                                  at::kComplexFloat, at::kComplexDouble}),
                     dtype) {
  const at::Tensor x = features(300, 20, dtype);
  check(fed(covariance(), x, 1), fed(gram(), x, 1), x);
  check(fed(covariance(), strided(x), 3), fed(gram(), strided(x), 3), x);
  Covariance one;  // a sample is a row, with its dimensions flattened
  Gram other;
  for (const auto& row : x.unbind(0)) {
    one.update(row.view({4, 5}));
    other.update(row.view({4, 5}));
  }
  check(one, other, x);
}

BOOST_AUTO_TEST_CASE(a_look_sees_all_rows_and_changes_nothing) {
  const at::Tensor x = features(400, 6);
  Covariance seen = covariance(), unseen = covariance();
  Gram seen_gram = gram(), unseen_gram = gram();
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    for (auto* one : {&seen, &unseen}) one->update(x.narrow(0, i, 1));
    for (auto* one : {&seen_gram, &unseen_gram}) one->update(x.narrow(0, i, 1));
    const std::int64_t n = i + 1;
    if (n % 128 <= 2 || n % 128 == 127) check(seen, seen_gram, x.narrow(0, 0, n));
  }
  BOOST_TEST(same(seen.results(), unseen.results()));
  BOOST_TEST(same(seen_gram.results(), unseen_gram.results()));
  const Covariance copy = seen;
  seen.update(x.narrow(0, 0, 1) * 100);
  BOOST_TEST(same(copy.results(), unseen.results()));
  const Covariance fresh = seen.fresh();
  BOOST_TEST(fresh.count() == 0);
  BOOST_TEST(fresh.results().empty());
  BOOST_TEST(same(fed(fresh, x, 1).results(), unseen.results()));
}

BOOST_DATA_TEST_CASE(merging_sees_gathered_rows, bdata::make({0, 1, 100, 128, 130, 256, 300}), split) {
  const at::Tensor x = features(300, 5);
  for (const std::int64_t batch : {1, 90}) {
    const auto of = [&](auto reduction, bool first) {
      const at::Tensor part = first ? x.narrow(0, 0, split) : x.narrow(0, split, 300 - split);
      return fed(reduction, part, batch);
    };
    auto left = of(covariance(), true);
    auto left_gram = of(gram(), true);
    const auto right = of(covariance(), false);
    const auto right_gram = of(gram(), false);
    left.merge(right);
    left_gram.merge(right_gram);
    check(left, left_gram, x);
    left.merge(left);
    left_gram.merge(left_gram);
    check(left, left_gram, at::cat({x, x}));
    left.update(x.narrow(0, 0, 1));
    left_gram.update(x.narrow(0, 0, 1));
    check(left, left_gram, at::cat({x, x, x.narrow(0, 0, 1)}));
    if (split < 300) check(right, right_gram, x.narrow(0, split, 300 - split));
  }
}

BOOST_DATA_TEST_CASE(archives_have_gathered_rows, bdata::make({0, 1, 127, 128, 129, 200}), split) {
  const at::Tensor x = features(300, 5);
  const auto goes_on = [&](const auto& fresh) {
    auto one = fresh;
    for (std::int64_t i = 0; i < split; ++i) one.update(x.narrow(0, i, 1));
    auto other = loaded(fed(fresh, x, 17), saved(one));  // what was there before is replaced
    BOOST_TEST(other.count() == split);
    BOOST_TEST(same(other.results(), one.results()));
    for (std::int64_t i = split; i < 300; ++i) {
      one.update(x.narrow(0, i, 1));
      other.update(x.narrow(0, i, 1));
    }
    BOOST_TEST(same(other.results(), one.results()));  // to the last bit
  };
  goes_on(covariance());
  goes_on(gram());
}

BOOST_AUTO_TEST_CASE(a_wrong_row_is_an_error_at_once_and_leaves_the_block) {
  const at::Tensor x = features(200, 5);
  const auto check_one = [&](auto one) {
    one = fed(one, x, 1);
    const auto before = one.results();
    BOOST_CHECK_THROW(one.update(at::ones({1, 4})), c10::ValueError);
    BOOST_CHECK_THROW(one.update(at::ones({})), c10::ValueError);
    BOOST_CHECK_THROW(one.update(at::full({1, 5}, kNaN)), c10::ValueError);
    BOOST_TEST(one.count() == 200);
    BOOST_TEST(same(one.results(), before));
  };
  check_one(Covariance(CovarianceOptions().over({0}).non_finite(NonFinite::raise)));
  check_one(Gram(GramOptions().over({0}).non_finite(NonFinite::raise)));
}

BOOST_AUTO_TEST_CASE(gathered_rows_that_are_not_finite_are_left_out) {
  at::Tensor x = features(300, 5);
  for (const std::int64_t i : {0, 5, 127, 128, 250}) x[i][i % 5] = i % 2 == 0 ? kNaN : kInfinity;
  const at::Tensor rows = x.index({x.isfinite().all(1)});
  for (const std::int64_t batch : {1, 50, 70}) {
    const auto covariance =
        fed(Covariance(CovarianceOptions().over({0}).non_finite(NonFinite::omit)), x, batch);
    const auto gram = fed(Gram(GramOptions().over({0}).non_finite(NonFinite::omit)), x, batch);
    BOOST_TEST(close(covariance.mean(), rows.mean(0), 1e-10));
    BOOST_TEST(close(covariance.covariance(), at::cov(rows.t()), 1e-10));
    BOOST_TEST(close(gram.value(), rows.t().matmul(rows), 1e-10));
    BOOST_TEST(covariance.omitted().item<std::int64_t>() == 5);
    BOOST_TEST(gram.omitted().item<std::int64_t>() == 5);
    BOOST_TEST(covariance.count() == 300);
  }
  auto none =
      fed(Covariance(CovarianceOptions().over({0}).non_finite(NonFinite::omit)), at::full({3, 2}, kNaN), 1);
  BOOST_TEST(none.omitted().item<std::int64_t>() == 3);
  none.update(at::ones({200, 2}));
  none.update(at::full({1, 2}, 4.0));
  BOOST_TEST(close(none.mean(), at::full({2}, 204.0 / 201, at::kDouble), 1e-12));
}

BOOST_AUTO_TEST_CASE(complex_rows_may_follow_real_ones) {
  const at::Tensor real = features(150, 4, at::kFloat), complex = features(150, 4, at::kComplexFloat);
  const at::Tensor all =
      at::cat({real.to(at::kComplexDouble), complex.to(at::kComplexDouble), real.to(at::kComplexDouble)});
  for (const std::int64_t batch : {1, 40, 150}) {
    const auto of = [&](auto one) { return fed(fed(fed(one, real, batch), complex, batch), real, batch); };
    const auto covariance = of(Covariance(CovarianceOptions().over({0})));
    const auto gram = of(Gram(GramOptions().over({0})));
    BOOST_TEST(close(covariance.covariance(), at::cov(all.t()), 1e-6));
    BOOST_TEST(close(gram.value(), all.t().conj().matmul(all), 1e-6));
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(top_k_lists)

namespace {

/// Rows with many equal numbers, and some that are special.
at::Tensor ties(at::IntArrayRef sizes, at::ScalarType dtype) {
  at::manual_seed(11);
  at::Tensor x =
      dtype == at::kBool ? at::randint(2, sizes, at::kDouble) : at::randint(-9, 10, sizes, at::kDouble);
  if (at::isFloatingType(dtype)) {
    const at::Tensor which = at::randint(60, sizes, at::kLong);
    x.masked_fill_(which.eq(0), kNaN)
        .masked_fill_(which.eq(1), kInfinity)
        .masked_fill_(which.eq(2), -kInfinity);
    x.masked_fill_(which.eq(3), -0.0);
  }
  return dtype == at::kByte ? x.abs().to(dtype) : x.to(dtype);
}

/// What sorting all rows [n, ...] at once gives.
core::Results by_sorting(const at::Tensor& rows, std::int64_t k, bool largest, bool omit) {
  at::Tensor x = rows.to(reductions::detail::kernel_type(rows.scalar_type()));
  const at::Tensor bad = x.isfinite().logical_not();
  if (omit) x = x.masked_fill(bad, largest ? -kInfinity : kInfinity);
  auto [values, indices] = at::sort(x, /*stable=*/true, 0, largest);
  const at::Tensor gone = bad.gather(0, indices);
  if (omit) {
    indices = indices.masked_fill(gone, -1);
    values = values.masked_fill(gone, kNaN);
  }
  k = std::min(k, rows.size(0));
  return {{"values", values.narrow(0, 0, k).to(rows.scalar_type())}, {"indices", indices.narrow(0, 0, k)}};
}

}  // namespace

BOOST_DATA_TEST_CASE(they_are_those_of_a_sort,
                     bdata::make({at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                                  at::kShort, at::kChar, at::kByte, at::kBool}) *
                         bdata::make({1, 4}) * bdata::make({true, false}) * bdata::make({true, false}),
                     dtype, k, largest, omit) {
  if (omit && !at::isFloatingType(dtype)) return;
  const auto options =
      TopKOptions(k).largest(largest).non_finite(omit ? NonFinite::omit : NonFinite::propagate);
  const auto check_same = [&](const TopK& got, const core::Results& want) {
    BOOST_TEST(close(got.values(), want.at("values"), 0.0));
    BOOST_TEST(got.indices().equal(want.at("indices")));
  };
  const at::Tensor x = ties({90, 5, 15}, dtype);
  const auto want = by_sorting(x, k, largest, omit);
  TopK each(options), each_strided(options);
  for (const auto& row : x.unbind(0)) {
    each.update(row);
    each_strided.update(strided(row));
  }
  check_same(each, want);
  check_same(each_strided, want);
  for (const std::int64_t batch : {1, 3, 90})
    check_same(fed(TopK(TopKOptions(options).over({0})), x, batch), want);
  const auto flat = by_sorting(x.reshape(-1), k, largest, omit);
  for (const std::int64_t batch : {1, 2, 90})
    check_same(fed(TopK(TopKOptions(options).over_all(true)), x, batch), flat);
}

BOOST_AUTO_TEST_CASE(large_samples_are_compared_too) {
  for (const bool largest : {true, false}) {
    const auto options = TopKOptions(3).largest(largest);
    const at::Tensor x = ties({7, 20, 3000}, at::kFloat);
    const auto want = by_sorting(x, 3, largest, false), flat = by_sorting(x.reshape(-1), 3, largest, false);
    for (const bool contiguous : {true, false}) {
      TopK each(options), all(TopKOptions(options).over_all(true)), rows(TopKOptions(options).over({0}));
      for (const auto& row : x.unbind(0)) {
        each.update(contiguous ? row : strided(row));
        all.update(contiguous ? row : strided(row));
      }
      rows.update(contiguous ? x : strided(x));
      for (const auto* one : {&each, &rows}) {
        BOOST_TEST(close(one->values(), want.at("values"), 0.0));
        BOOST_TEST(one->indices().equal(want.at("indices")));
      }
      BOOST_TEST(close(all.values(), flat.at("values"), 0.0));
      BOOST_TEST(all.indices().equal(flat.at("indices")));
    }
  }
}

BOOST_AUTO_TEST_CASE(dtypes_may_change_in_between) {
  TopK top(TopKOptions(2).over({0}));
  top.update(at::tensor({5, 1, 7}, at::kInt).unsqueeze(1));
  top.update(at::tensor({6.5, 9.0}, at::kDouble).unsqueeze(1));
  top.update(at::tensor({8, 2}, at::kInt).unsqueeze(1));
  BOOST_TEST(top.values().view(-1).equal(at::tensor({9.0, 8.0}, at::kDouble)));
  BOOST_TEST(top.indices().view(-1).equal(at::tensor({4, 5}, at::kLong)));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(sketches)

namespace {

template <class T>
void check_halves(std::int64_t n, std::int64_t stride, std::int64_t from, std::int64_t width,
                  const at::Tensor& x) {
  const at::Tensor sorted = std::get<0>(x.sort(0)).narrow(1, from, width);
  for (const std::uint64_t odd : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0x9e3779b97f4a7c15}}) {
    at::Tensor got = at::full({n / 2, stride}, -1.0, x.options());
    statistics::detail::halve_columns(static_cast<const T*>(x.data_ptr()), n, stride, from, width, odd,
                                      static_cast<T*>(got.data_ptr()));
    at::Tensor want = at::full({n / 2, stride}, -1.0, x.options());
    for (std::int64_t i = 0; i < width; ++i)
      want.select(1, from + i).copy_(sorted.select(1, i).slice(0, (odd >> i % 64) & 1, n, 2));
    BOOST_TEST(close(got, want, 0.0), n << ' ' << stride << ' ' << from << ' ' << width << ' ' << odd);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(half_of_the_sorted_columns) {
  at::manual_seed(3);
  for (const std::int64_t n : {2, 4, 6, 14, 16, 34, 512, 514}) {
    for (const std::int64_t stride : {1, 5, 8, 70, 200}) {
      for (const bool nan : {false, true}) {
        at::Tensor x = at::randn({n, stride}, at::kDouble);
        if (nan) x.masked_fill_(at::rand({n, stride}).lt(0.01), kNaN);
        check_halves<double>(n, stride, 0, stride, x);
        check_halves<float>(n, stride, 0, stride, x.to(at::kFloat));
        check_halves<float>(n, stride, stride / 3, stride - stride / 3 - stride / 4, x.to(at::kFloat));
      }
    }
  }
}

BOOST_DATA_TEST_CASE(small_samples_are_taken_like_others,
                     bdata::make({at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kByte}) *
                         bdata::make({1, 7, 40}),
                     dtype, size) {
  at::manual_seed(4);
  at::Tensor x = (at::randn({3000, size}, at::kDouble) * 40).to(dtype == at::kByte ? at::kInt : dtype);
  if (at::isFloatingType(dtype)) x.masked_fill_(at::rand({3000, size}).lt(0.002), kNaN);
  x = x.to(dtype);
  const auto options = QuantilesOptions().k(16).seed(5);
  const auto check_same = [](const Quantiles& a, const Quantiles& b) {
    BOOST_TEST(same(a.results(), b.results()));
    BOOST_TEST(a.retained() == b.retained());
    BOOST_TEST(a.count() == b.count());
  };
  Quantiles each(options), each_strided(options);
  for (const auto& row : x.unbind(0)) {
    each.update(row);
    each_strided.update(strided(row));
  }
  check_same(each, each_strided);
  check_same(fed(Quantiles(QuantilesOptions(options).over({0})), x, 3),
             fed(Quantiles(QuantilesOptions(options).over({0})), strided(x), 3));
  check_same(fed(Quantiles(QuantilesOptions(options).over_all(true)), x, 1),
             fed(Quantiles(QuantilesOptions(options).over_all(true)), strided(x), 1));
  // Saved and loaded, it goes on alike.
  const auto half = fed(Quantiles(QuantilesOptions(options).over({0})), x.narrow(0, 0, 1001), 2);
  const auto other = loaded(Quantiles(), saved(half));
  check_same(fed(half, x, 2), fed(other, x, 2));
}

BOOST_DATA_TEST_CASE(the_error_of_small_samples_is_bounded, bdata::make({1, 30, 100}), part) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({60000, 12}) * at::arange(1, 13);
  const auto check_ranks = [&](const Quantiles& sketch, const at::Tensor& columns) {
    const at::Tensor sorted = std::get<0>(columns.sort(0));
    const std::vector<double> levels{0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0};
    const at::Tensor got = sketch.quantiles(levels).reshape({static_cast<std::int64_t>(levels.size()), -1});
    int beyond = 0;
    for (std::size_t i = 0; i < levels.size(); ++i) {
      const at::Tensor rank = sorted.le(got[static_cast<std::int64_t>(i)]).sum(0).to(at::kDouble);
      const double n = static_cast<double>(sorted.size(0));
      beyond += ((rank - levels[i] * n).abs() > sketch.rank_error() * n + 2).sum().item<int>();
    }
    BOOST_TEST(beyond <= 1);  // of 7 or 84, each with probability 0.01
    BOOST_TEST(sketch.rank_error() > 0);
    BOOST_TEST(sketch.retained() < 4 * 512);
  };
  check_ranks(fed(Quantiles(QuantilesOptions().over({0})), x, part), x);
  check_ranks(fed(Quantiles(QuantilesOptions().over_all(true)), x.select(1, 0), part),
              x.select(1, 0).unsqueeze(1));
}

BOOST_AUTO_TEST_CASE(wider_samples_may_follow) {
  at::manual_seed(9);
  const at::Tensor x = at::randn({300, 3});
  Quantiles mixed(QuantilesOptions().over({0}).k(1000));
  mixed.update(x.narrow(0, 0, 100));
  mixed.update(x.narrow(0, 100, 100).to(at::kDouble));
  mixed.update(x.narrow(0, 200, 100));
  BOOST_CHECK(mixed.median().scalar_type() == at::kDouble);
  BOOST_TEST(close(mixed.quantile(0.3), at::quantile(x.to(at::kDouble), 0.3, 0), 1e-12));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(choices)

BOOST_DATA_TEST_CASE(small_samples_are_chosen_like_others,
                     bdata::make({at::kFloat, at::kDouble, at::kHalf, at::kLong, at::kBool}), dtype) {
  at::manual_seed(1);
  const at::Tensor x = (at::randn({500, 20}, at::kDouble) * 4).to(dtype);
  const auto check_same = [](const Reservoir& a, const Reservoir& b) {
    BOOST_TEST(same(a.results(), b.results()));
  };
  const auto options = ReservoirOptions(6).seed(8);
  Reservoir each(options), each_strided(options);
  for (const auto& row : x.unbind(0)) {
    each.update(row);
    each_strided.update(strided(row));
  }
  check_same(each, each_strided);
  BOOST_TEST(each.samples().equal(x.index_select(0, each.indices())));
  for (const std::int64_t batch : {1, 7}) {
    check_same(fed(Reservoir(ReservoirOptions(options).over({0})), x, batch), each);
    check_same(fed(Reservoir(ReservoirOptions(options).over_all(true)), x, batch),
               fed(Reservoir(ReservoirOptions(options).over_all(true)), strided(x), 2 * batch));
  }
}

/// The upper 64 bits of the product, by halves.
std::uint64_t high_half(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t low = ~std::uint32_t{0}, a0 = a & low, a1 = a >> 32, b0 = b & low, b1 = b >> 32;
  const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & low);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}

BOOST_AUTO_TEST_CASE(numbers_below_a_bound_are_those_of_the_definition) {
  statistics::detail::Random fast(3), plain(3);
  for (const std::uint64_t bound : {std::uint64_t{1}, std::uint64_t{10}, std::uint64_t{1} << 63,
                                    (std::uint64_t{1} << 63) + 1, ~std::uint64_t{0}}) {
    // A number is unfair if the low half of its product with the bound, which wraps around, is below 2^64 mod
    // bound.
    const std::uint64_t unfair = (0 - bound) % bound;
    for (int i = 0; i < 100; ++i) {
      std::uint64_t number = plain.next();
      while (number * bound < unfair) number = plain.next();
      BOOST_TEST(fast.below(bound) == high_half(number, bound));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
