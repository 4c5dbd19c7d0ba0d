// Companions that do not fit, compositions that cannot be, and damaged states: errors that say what to do and
// change nothing.
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(companion_errors)

using namespace torchtap::reductions;
using torchtap::core::Context;
using torchtap_test::contains;
using torchtap_test::error_of;

namespace {

std::string state_of(const Any& reduction) {
  return torchtap::core::save(reduction).value().bytes;
}

Any sum() {
  return Sum(SumOptions().over({0}).non_finite(NonFinite::raise));
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_wrong_companion_is_named_and_changes_nothing) {
  const at::Tensor x = at::randn({5, 2}), keys = at::tensor({0, 1, 2, 3, 4});
  struct Wrong {
    at::Tensor companion, x;  // undefined: missing
    std::vector<std::string> texts;
  };
  const auto elsewhere = at::TensorOptions(at::kMeta);
  const std::vector<Wrong> any{
      {{}, x, {"update: nothing is called \"c\" in this thread", "core::Context named(\"c\", tensor)"}},
      {at::ones({4}, at::kLong), x, {"update: \"c\" has shape [4] and the sample [5, 2]", "has to be how"}},
      {at::ones({2}, at::kLong), x, {"\"c\" has shape [2] and the sample [5, 2]"}},
      {at::ones({5, 3}, at::kLong), x, {"\"c\" has shape [5, 3] and the sample [5, 2]"}},
      {at::ones({5, 2, 1}, at::kLong), x, {"\"c\" has shape [5, 2, 1] and the sample [5, 2]"}},
      {at::empty({5}, elsewhere.dtype(at::kLong)),
       x,
       {"\"c\" is on meta and the sample on cpu", "on the sample's device or on the CPU"}},
      {keys, at::Tensor(), {"expected a tensor, got an undefined one"}},
      {keys, x.to_sparse(), {"expected a plain strided tensor"}}};
  const std::vector<Wrong> by_wrong{
      {keys.to(at::kFloat), x, {"By::update: \"c\" has dtype Float", "to(torch::kLong)"}},
      {keys.to(at::kDouble), x, {"By::update: \"c\" has dtype Double", "to(torch::kLong)"}},
      {keys.to(at::kHalf), x, {"\"c\" has dtype Half"}},
      {keys.to(at::kComplexFloat), x, {"\"c\" has dtype ComplexFloat", "to(torch::kLong)"}},
      {at::tensor({0, 1, 2, 3, 5}), x, {"\"c\" has the key 5; expected keys below 5, or negative ones"}},
      {keys, at::randn({5, 3}), {"Sum::update", "shape"}},
      {keys, at::empty({5, 2}, elsewhere), {"Sum::update: a sample on meta", "the state on cpu"}},
      {keys, at::tensor({1, 2, 3, 4, 5}), {"Sum::update", "shape"}}};
  const std::vector<Wrong> most_wrong{
      {at::tensor({0, 1, 2, 3, 70}), x, {"with key 70, \"c\" has more than 5", "ByOptions(\"c\").most("}}};
  const std::vector<Wrong> where_wrong{
      {keys, x, {"Where::update: \"c\" has dtype Int", "to(torch::kBool)"}},
      {keys.to(at::kFloat), x, {"Where::update: \"c\" has dtype Float", "to(torch::kBool)"}},
      {keys.gt(2), at::randn({5, 3}), {"Sum::update", "shape"}},
      {keys.ge(0), at::empty({5, 2}, elsewhere), {"Sum::update: a sample on meta", "the state on cpu"}}};
  const auto check = [&](Any one, const at::Tensor& right, const std::vector<std::vector<Wrong>>& all) {
    const Context others({{"labels", keys}, {"C", keys}, {"c ", keys}});  // none of which is asked for
    {
      const Context named("c", right);
      one.update(x);
    }
    const auto state = state_of(one);
    const auto results = one.results();
    for (const auto& some : all) {
      for (const Wrong& wrong : some) {
        Context named;
        if (wrong.companion.defined()) named.set("c", wrong.companion);
        const auto error = error_of([&] { one.update(wrong.x); });
        BOOST_TEST_CONTEXT(one.describe() << ": " << error) {
          BOOST_TEST(!error.empty());
          for (const auto& text : wrong.texts) BOOST_TEST(contains(error, text), text);
          BOOST_TEST(error_of([&] { one.check(wrong.x); }) == error);
          BOOST_TEST(state_of(one) == state);
          BOOST_TEST((one.results() == results));
        }
      }
    }
  };
  check(by("c", 5, sum()), keys, {any, by_wrong});
  check(By(ByOptions("c").most(5), sum()), keys, {any, most_wrong});
  check(where("c", sum()), keys.gt(1), {any, where_wrong});
  check(every(1, by("c", 5, sum())), keys, {any, by_wrong});
  check(AnySeries({sum(), by("c", 5, sum())}), keys, {by_wrong});
}

/// By what members check, and by updates of copies for those that cannot.
BOOST_AUTO_TEST_CASE(the_third_of_five_groups_throws_and_all_are_as_before) {
  const Max max(MaxOptions().over({0}).non_finite(NonFinite::raise));
  const Any each[] = {sum(),
                      window(2, max),
                      AnySeries({Count(CountOptions().over({0})), window(2, max)}),
                      AnySeries({window(2, max), Moments(MomentsOptions().over({0}))}),
                      every(2, AnySeries({max, sum()})),
                      where("mask", AnySeries({window(1, max), sum()})),
                      joint("other", max),
                      by("inner", window(3, max)),
                      where("mask", by("inner", joint("other", sum())))};
  for (const Any& one : each) {
    Any grouped = by("key", one);
    const at::Tensor x = at::randn({10, 3}), key = at::arange(10) % 5;
    const Context named(
        {{"key", key}, {"mask", at::arange(10).ne(3)}, {"inner", at::arange(10) % 3}, {"other", x.clone()}});
    grouped.update(x);
    grouped.update(x + 1);
    const auto state = state_of(grouped);
    at::Tensor spoiled = x.clone();
    spoiled[7] = std::numeric_limits<float>::infinity();  // of key 2
    const auto error = error_of([&] { grouped.update(spoiled); });
    BOOST_TEST_CONTEXT(grouped.describe() << ": " << error) {
      BOOST_TEST(contains(error, "finite"));
      BOOST_TEST(state_of(grouped) == state);
      // One that is new, before and behind the one that throws.
      const Context more("key", at::tensor({9, 1, 2, 3, 4, 0, 8, 2, 3, 5}));
      BOOST_TEST(contains(error_of([&] { grouped.update(spoiled); }), "finite"));
      BOOST_TEST(state_of(grouped) == state);
    }
  }
}

BOOST_AUTO_TEST_CASE(there_are_at_most_4096_keys_unless_more_are_asked_for) {
  const at::Tensor keys = at::arange(4096), x = at::ones({4096, 1});
  By bounded = by("c", Sum(SumOptions().over({0}))),
     more(ByOptions("c").most(4097), Sum(SumOptions().over({0})));
  for (By* const one : {&bounded, &more}) {
    const Context named("c", keys);
    one->update(x);
  }
  const Context named("c", at::tensor({7, 5000}));
  const auto error = error_of([&] { bounded.update(x.slice(0, 0, 2)); });
  BOOST_TEST_CONTEXT(error)
  BOOST_TEST(contains(error, "with key 5000, \"c\" has more than 4096 different keys"));
  more.update(x.slice(0, 0, 2));
  BOOST_TEST(bounded.count() == 4096);
  BOOST_TEST(bounded.at(7).count() == 1);
  BOOST_TEST(more.count() == 4098);
  BOOST_TEST(contains(error_of([&] { bounded.at(5000); }), "had the key 5000; keys() lists those that came"));
  auto merged = bounded;
  By other = by("c", Sum(SumOptions().over({0})));
  other.update(x.slice(0, 0, 2));
  BOOST_TEST(contains(error_of([&] { merged.merge(other); }), "more than 4096 different keys"));
  BOOST_TEST(merged.at(7).count() == 1);
  BOOST_TEST(by("c", Sum()).commutative());
  BOOST_TEST(!by("c", Last()).commutative());
  BOOST_TEST(!where("c", Last()).commutative());
}

BOOST_AUTO_TEST_CASE(what_loses_companions_says_where_to_write_them) {
  const auto weighted = [] {
    return map(
        "a", [](const at::Tensor& x, const at::Tensor& w) { return x * w; }, Sum());
  };
  const Any needy[] = {by("a", Mean()),
                       where("a", Mean()),
                       joint("a", Covariance(CovarianceOptions().over({0}))),
                       LinearCKA("a"),
                       CrossCovariance("a"),
                       weighted(),
                       every(2, by("a", Mean())),
                       AnySeries({Mean(), where("a", Mean())}),
                       parse("by(a, moments)")};
  for (const Any& one : needy) {
    for (const char* const around : {"window", "over"}) {
      const auto error = error_of([&] {
        if (around[0] == 'w') {
          window(2, one);
        } else {
          over({0}, one);
        }
      });
      BOOST_TEST_CONTEXT(error) {
        BOOST_TEST(contains(error, std::string(around) + ": "));
        BOOST_TEST(contains(error, one.describe()));
        BOOST_TEST(contains(error, "needs \"a\""));
        BOOST_TEST(contains(error, std::string("write by and where around ") + around));
      }
    }
    for (const auto& twice : {error_of([&] { by("a", one); }), error_of([&] { where("a", one); }),
                              error_of([&] { joint("a", one); })}) {
      BOOST_TEST_CONTEXT(twice) {
        BOOST_TEST(contains(twice, "uses \"a\", too; results need different names"));
      }
    }
    by("b", one);  // another name is fine
  }
  BOOST_TEST(
      contains(error_of([] { by("a", By(ByOptions("b").most(0), Mean())); }), "positive number of keys"));
  Mean filled;
  filled.update(at::ones({2}));
  BOOST_TEST(contains(error_of([&] { by("a", filled); }), "pass a new one"));
}

BOOST_AUTO_TEST_CASE(damaged_states_are_errors_or_reductions) {
  const std::int64_t low = 0x1122334455, high = 0x5544332211;
  const auto bytes_of = [](std::int64_t number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const at::Tensor x = at::randn({6, 2});
  const Context named({{"key", at::tensor({low, high, low, std::int64_t{-1}, high, low})},
                       {"mask", at::arange(6).ne(4)},
                       {"other", x * 2}});
  Any groups = by("key", sum());
  groups.update(x);
  const auto saved = torchtap::core::save(groups).value();
  BOOST_TEST((restore(saved).results() == groups.results()));
  const auto with_keys = [&](std::int64_t first, std::int64_t second) {
    auto damaged = saved;
    for (const auto& [from, to] : {std::pair{low, first}, std::pair{high, second}}) {
      const auto at = saved.bytes.find(bytes_of(from));
      BOOST_REQUIRE(at != std::string::npos);
      damaged.bytes.replace(at, sizeof from, bytes_of(to));
    }
    return damaged;
  };
  BOOST_TEST(contains(error_of([&] { restore(with_keys(high, low)); }), "is not where it may be"));
  BOOST_TEST(contains(error_of([&] { restore(with_keys(low, low)); }), "is not where it may be"));
  BOOST_TEST(contains(error_of([&] { restore(with_keys(-1, high)); }), "is not where it may be"));
  BOOST_TEST(contains(error_of([&] { restore(with_keys(low, -high)); }), "is not where it may be"));
  const Any other_keys = restore(with_keys(3, 4));
  BOOST_TEST(other_keys.get<By>()->keys() == std::vector<std::int64_t>({3, 4}));

  // Whatever else is damaged: an error, or a reduction that can be used.
  const std::int64_t numbers[] = {0,         1,        2, 7, -1, -2, 255, 1 << 20, std::int64_t{1} << 40,
                                  INT64_MAX, INT64_MIN};
  std::mt19937 random(5);
  int errors = 0, values = 0;
  for (Any one : {groups, Any(By(ByOptions("key").most(2), sum())),
                  Any(where("mask", by("key", joint("other", Covariance(CovarianceOptions().over({0})))))),
                  Any(by("key", AnySeries({LinearCKA("other"), where("mask", CrossCovariance("other"))})))}) {
    if (one.count() == 0) one.update(x);
    const auto whole = torchtap::core::save(one).value();
    for (int i = 0; i < 300; ++i) {
      auto damaged = whole;
      std::string& bytes = damaged.bytes;
      const std::size_t at = random() % bytes.size();
      if (random() % 3 == 0) {
        bytes[at] = static_cast<char>(random());
      } else if (bytes.size() - at >= 8) {
        bytes.replace(at, 8, bytes_of(numbers[random() % 11]));
      }
      try {
        Any again = restore(damaged);
        again.results();
        again.merge(Any(again));
        error_of([&] { again.update(x); });
        restore(torchtap::core::save(again).value());
        ++values;
      } catch (const c10::Error&) {
        ++errors;
      }
    }
  }
  BOOST_TEST(errors > 300);
  BOOST_TEST(values > 50);
}

/// Sparse ones, of which no row can be taken where it lies.
BOOST_AUTO_TEST_CASE(sparse_companions_are_errors_that_name_the_call) {
  const at::Tensor x = at::randn({3, 2});
  for (Any one : {Any(by("c", sum())), Any(where("c", sum()))}) {
    const bool by = one.get<By>() != nullptr;
    const Context named("c", at::ones({3}, by ? at::kLong : at::kBool).to_sparse());
    const auto error = error_of([&] { one.update(x); });
    BOOST_TEST_CONTEXT(one.describe() << ": " << error) {
      BOOST_TEST(contains(error, by ? "By::update: \"c\"" : "Where::update: \"c\""));
      BOOST_TEST(contains(error, "to_dense()"));
    }
  }
}

/// Keys whose name is a result's: an error, or results that have both.
BOOST_AUTO_TEST_CASE(keys_are_not_hidden_by_results_of_the_same_name) {
  for (const char* const name : {"value", "mean"}) {
    const Context named(name, at::tensor({5, 6, 6}));
    const auto error = error_of([&] {
      By means = by(name, Mean(MeanOptions().over({0}))),
         moments = by(name, Moments(MomentsOptions().over({0})));
      for (By* const one : {&means, &moments}) {
        one->update(at::randn({3, 2}));
        BOOST_TEST(one->results().at(name).equal(at::tensor({5, 6}, at::kLong)));
      }
    });
    BOOST_TEST((error.empty() || contains(error, name)));
  }
}

BOOST_AUTO_TEST_SUITE_END()
