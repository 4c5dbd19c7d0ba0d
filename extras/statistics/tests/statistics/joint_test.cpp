// Reductions of a sample beside another tensor, against plain LibTorch on all rows at once.
#include <cmath>
#include <string>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(beside)

using namespace torchtap::reductions;
using torchtap::core::Context;
using torchtap::core::Results;
using torchtap_test::contains;
using torchtap_test::error_of;

namespace {

struct Pair {
  at::Tensor x, y;
};

/// Batches of `sizes` rows, D = 5 and E = 3, which depend on each other.
std::vector<Pair> pairs(const std::vector<std::int64_t>& sizes, at::ScalarType dtype = at::kFloat) {
  at::manual_seed(3);
  const at::Tensor map = at::randn({5, 3});
  std::vector<Pair> all;
  for (const auto rows : sizes) {
    const at::Tensor x = at::randn({rows, 5}).mul(3).add(40);
    all.push_back({x.to(dtype), (x.mm(map) + at::randn({rows, 3})).to(dtype)});
  }
  return all;
}

Pair together(const std::vector<Pair>& all) {
  std::vector<at::Tensor> xs, ys;
  for (const auto& pair : all) {
    xs.push_back(pair.x.flatten(1));
    ys.push_back(pair.y.flatten(1));
  }
  return {at::cat(xs).to(at::kDouble), at::cat(ys).to(at::kDouble)};
}

template <class R>
R fed(R reduction, const std::vector<Pair>& all) {
  for (const auto& pair : all) {
    const Context named("other", pair.y);
    reduction.update(pair.x);
  }
  return reduction;
}

Joint covariance() {
  return joint("other", Covariance(CovarianceOptions().over({0})));
}

/// Linear CKA of all rows, by their Gram matrices [N, N].
double cka_of(const Pair& all) {
  const auto gram = [](const at::Tensor& x) {
    const at::Tensor centred = x - x.mean(0);
    return centred.mm(centred.t());
  };
  const at::Tensor k = gram(all.x), l = gram(all.y);
  return ((k * l).sum() / ((k * k).sum() * (l * l).sum()).sqrt()).item<double>();
}

const std::vector<std::int64_t> kSizes{7, 1, 200, 3, 64, 300, 1, 1};

}  // namespace

BOOST_AUTO_TEST_CASE(joint_has_the_bits_of_concatenated_rows) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kDouble, at::kLong}) {
    const auto all = pairs(kSizes, dtype);
    for (const Any& each :
         {Any(Covariance(CovarianceOptions().over({0}))), Any(Moments(MomentsOptions().over({0}))),
          Any(Histogram(HistogramOptions(8, -90, 90).over_all(true)))}) {
      Any separate = each;
      for (const auto& pair : all) separate.update(at::cat({pair.x, pair.y}, 1));
      const Joint whole = fed(joint("other", each), all);
      BOOST_TEST((whole.inner().results() == separate.results()));
      BOOST_TEST(whole.start() == 5);
      BOOST_TEST(whole.results().at("other.start").item<std::int64_t>() == 5);
      const auto saved = torchtap::core::save(whole).value();
      BOOST_TEST((restore(saved).results() == whole.results()));
    }
  }
}

BOOST_AUTO_TEST_CASE(cross_covariance_is_the_block_between) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kComplexDouble}) {
    auto all = pairs(kSizes, dtype);
    if (dtype == at::kComplexDouble) {
      for (auto& pair : all) {
        pair.x = at::complex(at::real(pair.x), at::randn(pair.x.sizes(), at::kDouble));
        pair.y = at::complex(at::real(pair.y), at::randn(pair.y.sizes(), at::kDouble));
      }
    }
    const Results got = fed(CrossCovariance("other"), all).results();
    Results want = fed(covariance(), all).results();
    const auto block = [](const at::Tensor& of) { return of.slice(0, 0, 5).slice(1, 5); };
    BOOST_TEST(close(got.at("covariance"), block(want.at("covariance")), 1e-12));
    BOOST_TEST(close(got.at("correlation"), block(want.at("correlation")), 1e-12));
    BOOST_TEST(close(got.at("mean"), want.at("mean").slice(0, 0, 5), 1e-13));
    BOOST_TEST(close(got.at("other.mean"), want.at("mean").slice(0, 5), 1e-13));
    const at::Tensor variance = at::real(want.at("covariance").diagonal());
    BOOST_TEST(close(got.at("variance"), variance.slice(0, 0, 5), 1e-12));
    BOOST_TEST(close(got.at("other.variance"), variance.slice(0, 5), 1e-12));
  }
  const auto all = pairs(kSizes);
  const Pair rows = together(all);
  const at::Tensor x = rows.x - rows.x.mean(0), y = rows.y - rows.y.mean(0);
  const auto n = static_cast<double>(x.size(0));
  BOOST_TEST(close(fed(CrossCovariance("other"), all).covariance(), x.t().mm(y) / (n - 1), 1e-12));
  const auto biased = CovarianceOptions().unbiased(false);
  BOOST_TEST(close(fed(CrossCovariance("other", biased), all).covariance(), x.t().mm(y) / n, 1e-12));
}

BOOST_AUTO_TEST_CASE(batches_do_not_matter_and_parts_merge) {
  const auto all = pairs(kSizes);
  const Pair rows = together(all);
  const std::vector<Pair> one{{rows.x, rows.y}};
  BOOST_TEST(close(fed(CrossCovariance("other"), all).covariance(),
                   fed(CrossCovariance("other"), one).covariance(), 1e-12));
  BOOST_TEST(fed(LinearCKA("other"), all).value().item<double>() == cka_of(rows),
             boost::test_tools::tolerance(1e-12));
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    const std::vector<Pair> left(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(cut)),
        right(all.begin() + static_cast<std::ptrdiff_t>(cut), all.end());
    auto cross = fed(CrossCovariance("other"), left);
    cross.merge(fed(CrossCovariance("other"), right));
    BOOST_TEST(close(cross.covariance(), fed(CrossCovariance("other"), one).covariance(), 1e-12));
    BOOST_TEST(close(cross.results().at("variance"), rows.x.var(0), 1e-12));
    auto cka = fed(LinearCKA("other"), left);
    cka.merge(fed(LinearCKA("other"), right));
    BOOST_TEST(cka.value().item<double>() == cka_of(rows), boost::test_tools::tolerance(1e-12));
    BOOST_TEST(cka.count() == rows.x.size(0));
    for (const Any& saved : {Any(cross), Any(cka)}) {
      const auto state = torchtap::core::save(saved).value();
      const Any again = restore(state);
      BOOST_TEST((again.results() == saved.results()));
      BOOST_TEST(torchtap::core::save(again).value().bytes == state.bytes);
      BOOST_TEST(again.fresh().count() == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(cka_is_one_for_rotated_features_and_nan_for_constant_ones) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({300, 12}, at::kDouble);
  const at::Tensor q = std::get<0>(at::linalg_qr(at::randn({12, 12}, at::kDouble)));
  const auto value = [&](const at::Tensor& y) {
    return fed(LinearCKA("other"),
               {{x.slice(0, 0, 100), y.slice(0, 0, 100)}, {x.slice(0, 100), y.slice(0, 100)}})
        .value()
        .item<double>();
  };
  BOOST_TEST(value(x.mm(q) * 3 + 7) == 1.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(value(x) == 1.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(value(at::randn({300, 4}, at::kDouble)) < 0.1);
  BOOST_TEST(std::isnan(value(at::ones({300, 2}, at::kDouble))));
}

BOOST_AUTO_TEST_CASE(rows_that_are_not_finite_on_either_side_are_left_out) {
  auto all = pairs({50, 2, 1, 400});
  all[0].x[3][1] = NAN;
  all[0].y[8][0] = INFINITY;
  all[3].y[399][2] = NAN;
  const auto options = CovarianceOptions().non_finite(NonFinite::omit);
  Pair rows = together(all);
  const at::Tensor finite = (rows.x.isfinite().all(1) & rows.y.isfinite().all(1)).nonzero().flatten();
  rows = {rows.x.index_select(0, finite), rows.y.index_select(0, finite)};
  const auto cross = fed(CrossCovariance("other", options), all);
  const at::Tensor x = rows.x - rows.x.mean(0), y = rows.y - rows.y.mean(0);
  BOOST_TEST(close(cross.covariance(), x.t().mm(y) / (static_cast<double>(x.size(0)) - 1), 1e-12));
  BOOST_TEST(cross.omitted().item<std::int64_t>() == 3);
  BOOST_TEST(cross.results().contains("omitted"));
  const auto cka = fed(LinearCKA("other", options), all);
  BOOST_TEST(cka.value().item<double>() == cka_of(rows), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(cka.results().at("omitted").item<std::int64_t>() == 3);
}

/// Against the solution by a QR decomposition of all rows.
BOOST_AUTO_TEST_CASE(least_squares_is_the_best_linear_map) {
  auto all = pairs(kSizes, at::kDouble);
  for (auto& pair : all) pair.x = pair.x * at::tensor({1.0, 1e-3, 10.0, 1.0, 1e3});
  const Pair rows = together(all);
  const Results found = least_squares(fed(covariance(), all).results());
  const at::Tensor design = at::cat({rows.x, at::ones({rows.x.size(0), 1}, at::kDouble)}, 1);
  const at::Tensor want = std::get<0>(at::linalg_lstsq(design, rows.y, c10::nullopt, "gelsd"));
  BOOST_TEST(close(found.at("weight"), want.slice(0, 0, 5).t(), 1e-9));
  BOOST_TEST(close(found.at("bias"), want[5], 1e-7));  // of features around 4e4

  // A feature twice has infinitely many best maps: the smallest shares the weight.
  std::vector<Pair> twice;
  for (const auto& pair : all) twice.push_back({at::cat({pair.x, pair.x}, 1), pair.y});
  const Results shared = least_squares(fed(covariance(), twice).results());
  BOOST_TEST(close(shared.at("weight"), at::cat({found.at("weight"), found.at("weight")}, 1) / 2, 1e-7));

  const auto error = error_of([&] { least_squares(fed(CrossCovariance("other"), all).results()); });
  BOOST_TEST_CONTEXT(error) BOOST_TEST(contains(error, "least_squares: expected the results of joint("));
}

/// Features that depend on each other, so that scales do not help: against `torch.linalg.lstsq` of all rows.
BOOST_AUTO_TEST_CASE(least_squares_of_features_that_nearly_depend_on_each_other) {
  at::manual_seed(12);
  const auto orthogonal = [](std::int64_t rows, std::int64_t columns) {
    return std::get<0>(at::linalg_qr(at::randn({rows, columns}, at::kDouble)));
  };
  for (const double condition : {1.0, 1e2, 1e3, 1e4}) {
    const at::Tensor scales = at::logspace(0, -std::log10(condition), 6, 10, at::kDouble) * 20;
    const at::Tensor x = (orthogonal(400, 6) * scales).mm(orthogonal(6, 6));
    const at::Tensor y = x.mm(at::randn({6, 2}, at::kDouble)) + 3 + at::randn({400, 2}, at::kDouble) * 1e-3;
    std::vector<Pair> all;
    for (std::int64_t from = 0; from < 400; from += 25)
      all.push_back({x.slice(0, from, from + 25), y.slice(0, from, from + 25)});
    const Results found = least_squares(fed(covariance(), all).results());
    const at::Tensor design = at::cat({x, at::ones({400, 1}, at::kDouble)}, 1);
    const at::Tensor want = std::get<0>(at::linalg_lstsq(design, y, c10::nullopt, "gelsd"));
    const auto error = [](const at::Tensor& got, const at::Tensor& right) {
      return ((got - right).norm() / right.norm()).item<double>();
    };
    const at::Tensor singular = at::linalg_svdvals(x - x.mean(0));
    BOOST_TEST_CONTEXT("condition number " << (singular[0] / singular[5]).item<double>()) {
      // Of normal equations: the square of the condition number times the precision of float64.
      BOOST_TEST(error(found.at("weight"), want.slice(0, 0, 6).t()) < 1e-14 + 1e-15 * condition * condition);
      BOOST_TEST(error(found.at("bias"), want[6]) < 1e-9);
      BOOST_TEST(error(x.mm(found.at("weight").t()) + found.at("bias"), design.mm(want)) < 1e-9);
    }
  }
}

BOOST_AUTO_TEST_CASE(map_with_a_name_gives_the_callable_both) {
  const auto all = pairs(kSizes, at::kDouble);
  auto weighted = map(
      "other", [](const at::Tensor& x, const at::Tensor& w) { return x * w.select(1, 0).unsqueeze(1); },
      Sum(SumOptions().over({0})));
  BOOST_TEST(weighted.companions() == std::vector<std::string>{"other"});
  weighted = fed(weighted, all);
  const Pair rows = together(all);
  BOOST_TEST(
      close(weighted.results().at("value"), (rows.x * rows.y.select(1, 0).unsqueeze(1)).sum(0), 1e-12));
  BOOST_TEST(weighted.fresh().count() == 0);
  BOOST_TEST(weighted.describe() == "Map(other, Sum(over=[0]))");
}

/// `where` and `by` choose rows of the other tensor, too.
BOOST_AUTO_TEST_CASE(rows_are_chosen_on_both_sides) {
  const auto all = pairs({40, 60, 1, 33});
  Any grouped = by("key", where("mask", joint("other", Covariance(CovarianceOptions().over({0})))));
  Any cross = where("mask", by("key", Any(CrossCovariance("other"))));
  Any mapped =
      by("key", map(
                    "other", [](const at::Tensor& x, const at::Tensor& y) { return x.slice(1, 0, 3) - y; },
                    Mean(MeanOptions().over({0}))));
  std::vector<Covariance> want(3, Covariance(CovarianceOptions().over({0})));
  std::vector<Mean> differences(3, Mean(MeanOptions().over({0})));
  for (const auto& pair : all) {
    const at::Tensor key = at::randint(0, 3, {pair.x.size(0)}, at::kLong),
                     mask = at::rand({pair.x.size(0)}).lt(0.7);
    const Context named(Context::Names{{"other", pair.y}, {"key", key}, {"mask", mask}});
    grouped.update(pair.x);
    cross.update(pair.x);
    mapped.update(pair.x);
    const at::Tensor both = at::cat({pair.x, pair.y}, 1);
    for (std::int64_t i = 0; i < 3; ++i) {
      const at::Tensor of_key = key.eq(i).nonzero().flatten(), rows = (key.eq(i) & mask).nonzero().flatten();
      if (rows.numel() != 0) want[i].update(both.index_select(0, rows));
      if (of_key.numel() != 0)
        differences[i].update((pair.x.slice(1, 0, 3) - pair.y).index_select(0, of_key));
    }
  }
  for (std::int64_t i = 0; i < 3; ++i) {
    BOOST_TEST(at::equal(grouped.get<By>()->results().at("covariance")[i], want[i].covariance()));
    BOOST_TEST(
        close(cross.results().at("covariance")[i], want[i].covariance().slice(0, 0, 5).slice(1, 5), 1e-12));
    BOOST_TEST(at::equal(mapped.results().at("value")[i], differences[i].value()));
  }
}

BOOST_AUTO_TEST_CASE(text_names_the_other_tensor) {
  const auto rows = ParseOptions().over({0});
  BOOST_TEST(parse("cka(theirs)").describe() == "LinearCKA(theirs)");
  // The command folds over all elements unless told otherwise; a pair of tensors has rows.
  BOOST_TEST(parse("cka(theirs)", ParseOptions().over_all(true)).describe() == "LinearCKA(theirs)");
  parse("cross_covariance(theirs)", ParseOptions().over_all(true));
  BOOST_TEST(parse("cross_covariance(theirs)", rows).describe() == "CrossCovariance(theirs, over=[0])");
  BOOST_TEST(parse("joint(theirs, covariance)", rows).describe() == "Joint(theirs, Covariance(over=[0]))");
  BOOST_TEST(parse("by(label, cka(theirs))").companions() == std::vector<std::string>({"label", "theirs"}));
  for (const char* const text : {"cka", "cka()", "cka(a, b)", "cka(a:1)", "cka:a", "cka(a(b))", "joint(a)"}) {
    const auto error = error_of([&] { parse(text); });
    BOOST_TEST_CONTEXT(text << ": " << error) BOOST_TEST(contains(error, "expected"));
  }
  const auto error = error_of([&] { parse("cka(theirs)", ParseOptions().over({1})); });
  BOOST_TEST_CONTEXT(error) BOOST_TEST(contains(error, "rows lie along dimension 0"));
}

BOOST_AUTO_TEST_CASE(errors_name_the_call_and_change_nothing) {
  const auto all = pairs({20, 30});
  const at::Tensor x = at::randn({4, 5}), y = at::randn({4, 3});
  const std::vector<std::pair<Any, std::string>> each{
      {fed(covariance(), all), "Joint"},
      {fed(LinearCKA("other"), all), "Joint"},
      {fed(CrossCovariance("other"), all), "CrossCovariance"}};
  struct Wrong {
    at::Tensor x, y;
    const char* text;
  };
  const std::vector<Wrong> cases{{x, at::randn({3, 3}), "has shape [3, 3] and the sample [4, 5]"},
                                 {at::randn({}), y, "and the sample []"},
                                 {at::randn({4, 6}), at::randn({4, 2}), "expected 5 numbers in each row"},
                                 {x, at::randn({4, 2}), "a sample of shape [4, 7]"},
                                 {x, y.to_sparse(), "expected a plain strided tensor"},
                                 {at::Tensor(), y, "got an undefined one"}};
  for (const auto& [reduction, name] : each) {
    Any one = reduction;
    const auto state = torchtap::core::save(one).value().bytes;
    for (const auto& wrong : cases) {
      const Context named("other", wrong.y);
      const auto error = error_of([&] { one.update(wrong.x); });
      BOOST_TEST_CONTEXT(name << ": " << error) BOOST_TEST(contains(error, wrong.text));
      BOOST_TEST(error == error_of([&] { one.check(wrong.x); }));
    }
    const auto error = error_of([&] { one.update(x); });
    BOOST_TEST_CONTEXT(error)
    BOOST_TEST(contains(error, "reductions::" + name + "::update: nothing is called \"other\""));
    BOOST_TEST(torchtap::core::save(one).value().bytes == state);
  }
  auto cross = fed(CrossCovariance("other"), all);
  const auto swapped = [&] {
    CrossCovariance one("other");
    const Context named("other", at::randn({4, 5}));
    one.update(at::randn({4, 3}));
    return one;
  };
  const auto error = error_of([&] { cross.merge(swapped()); });
  BOOST_TEST_CONTEXT(error) BOOST_TEST(contains(error, "with 3 features of the sample"));
  BOOST_TEST(error_of([&] { LinearCKA("a").merge(LinearCKA("b")); }) != "");
  BOOST_TEST(contains(error_of([] { CrossCovariance("a", CovarianceOptions().over({1})); }), "dimension 0"));
  BOOST_TEST(contains(error_of([] { window(2, Any(CrossCovariance("a"))); }), "\"a\""));
}

BOOST_AUTO_TEST_SUITE_END()
