// Reductions by key and by mask, against separate reductions that are given the rows by indexing.
#include <sstream>

#include <torchtap/core/context.hpp>
#include <torchtap/core/extend/state_archive.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(companions)

using namespace torchtap::reductions;
using torchtap::core::Context;
using torchtap::core::Results;
using torchtap_test::contains;
using torchtap_test::error_of;

namespace {

std::vector<Any> each_of_many() {
  return {Moments(MomentsOptions().over({0})),
          Mean(MeanOptions().over({0})),
          Sum(SumOptions().over({0})),
          Max(MaxOptions().over({0})),
          Count(CountOptions().over({0})),
          Norm(NormOptions().over({0})),
          EMA(EMAOptions(0.75).over({0})),
          Covariance(CovarianceOptions().over({0})),
          Histogram(HistogramOptions(16, -3, 3).over_all(true)),
          LogHistogram(LogHistogramOptions().over_all(true)),
          Quantiles(QuantilesOptions().over({0})),
          TopK(TopKOptions(2).over({0})),
          Reservoir(ReservoirOptions(3).over({0})),
          Series(Moments(MomentsOptions().over({0})), Count(CountOptions().over({0}))),
          every(3, Mean(MeanOptions().over({0}))),
          window(2, Mean(MeanOptions().over({0}))),
          over({0}, Sum())};
}

struct Batch {
  at::Tensor x, key;
};

std::vector<Batch> batches(int n, at::ScalarType dtype = at::kFloat) {
  at::manual_seed(5);
  std::vector<Batch> all;
  for (int i = 0; i < n; ++i) {
    const at::Tensor x = i % 3 == 1 ? at::randn({6, 17}).t() : at::randn({17, 6});  // also not contiguous
    all.push_back({x.mul(4).to(dtype), at::randint(-1, 4, {17}, at::kLong)});
  }
  return all;
}

at::Tensor rows_of(const Batch& batch, std::int64_t key) {
  return batch.x.index_select(0, batch.key.eq(key).nonzero().flatten());
}

void feed(By& by, const Batch& batch) {
  const Context named(by.companions().front(), batch.key);
  by.update(batch.x);
}

/// Throws in an update of rows that begin with 777; only an update can tell.
struct Picky {
  std::int64_t seen = 0;
  void update(const at::Tensor& sample) {
    TORCH_CHECK_VALUE(sample.flatten()[0].item<float>() != 777, "refused");
    seen += sample.size(0);
  }
  void merge(const Picky& other) { seen += other.seen; }
  std::int64_t count() const { return seen; }
  Results results() const { return {{"seen", at::scalar_tensor(seen, at::kLong)}}; }
};

}  // namespace

BOOST_AUTO_TEST_CASE(groups_have_the_bits_of_separate_reductions_also_merged_and_restored) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kLong}) {
    const auto data = batches(12, dtype);
    for (const Any& each : each_of_many()) {
      BOOST_TEST_CONTEXT(each.describe() << " of " << dtype) {
        By whole = by("labels", each);
        std::vector<Any> separate(4, each);
        for (const Batch& batch : data) {
          feed(whole, batch);
          for (std::int64_t key = 0; key < 4; ++key) {
            const at::Tensor rows = rows_of(batch, key);
            if (rows.size(0) != 0) separate[key].update(rows);
          }
        }
        BOOST_TEST(whole.keys() == std::vector<std::int64_t>({0, 1, 2, 3}));
        for (std::int64_t key = 0; key < 4; ++key)
          BOOST_TEST((whole.at(key).results() == separate[key].results()));
        const auto saved = torchtap::core::save(whole).value();
        const Any again = restore(saved);
        BOOST_TEST((again.results() == whole.results()));
        BOOST_TEST(torchtap::core::save(again).value().bytes == saved.bytes);

        if (each.describe().find("Every") == 0) continue;  // merges after a multiple of its number alone
        By a = by("labels", each), b = by("labels", each);
        std::vector<Any> as(4, each), bs(4, each);
        for (std::size_t i = 0; i < data.size(); ++i) {
          feed(i < 5 ? a : b, data[i]);
          for (std::int64_t key = 0; key < 4; ++key) {
            const at::Tensor rows = rows_of(data[i], key);
            if (rows.size(0) != 0) (i < 5 ? as : bs)[key].update(rows);
          }
        }
        a.merge(b);
        for (std::int64_t key = 0; key < 4; ++key) {
          as[key].merge(bs[key]);
          BOOST_TEST((a.at(key).results() == as[key].results()));
        }
        BOOST_TEST(a.left_out() == whole.left_out());
      }
    }
  }
}

/// Samples that the kernels read in runs or columns, or line by line, with rows of one key or of scattered
/// ones.
BOOST_AUTO_TEST_CASE(rows_where_they_lie_have_the_bits_of_gathered_ones) {
  struct Case {
    std::vector<std::int64_t> sizes, over;
    std::int64_t dims;  // of the key
  };
  const std::vector<Case> cases{{{24, 3, 40, 40}, {0, 2, 3}, 1},  // runs
                                {{24, 2, 8, 8}, {0, 2, 3}, 1},    // short ones
                                {{30, 5, 3, 3}, {0, 2, 3}, 1},    // columns
                                {{12, 6, 16}, {0, 1}, 1},         // lines, some for each key
                                {{12, 6, 16}, {0}, 2},            // lines of tokens
                                {{90, 600}, {0}, 1},              // too large for lines
                                {{6, 50, 200}, {0, 1}, 1},
                                {{50, 7}, {0}, 1},
                                {{8, 70, 70}, {}, 1},  // all elements
                                {{9, 11}, {}, 2}};
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kInt}) {
    for (const Case& one : cases) {
      const auto options = [&](auto of) { return one.over.empty() ? of.over_all(true) : of.over(one.over); };
      const std::vector<Any> all{Moments(options(MomentsOptions())),
                                 Moments(options(MomentsOptions().order(2))),
                                 Mean(options(MeanOptions())),
                                 Sum(options(SumOptions())),
                                 Min(options(MinOptions())),
                                 AbsMax(options(AbsMaxOptions())),
                                 Norm(options(NormOptions())),
                                 Norm(options(NormOptions().p(1))),
                                 Count(options(CountOptions())),
                                 Quantiles(options(QuantilesOptions())),
                                 TopK(options(TopKOptions(2))),
                                 EMA(options(EMAOptions(0.5))),
                                 Covariance(options(CovarianceOptions())),
                                 Histogram(options(HistogramOptions(8, -4, 4))),
                                 Histogram(options(HistogramOptions(8))),
                                 LogHistogram(options(LogHistogramOptions())),
                                 First(options(FirstOptions())),
                                 Last(options(LastOptions())),
                                 Reservoir(options(ReservoirOptions(2))),
                                 Moments(options(MomentsOptions()).non_finite(NonFinite::omit)),
                                 Series(Moments(options(MomentsOptions())), Count(options(CountOptions())),
                                        Histogram(options(HistogramOptions(8, -4, 4))), Picky())};
      for (const Any& each : all) {
        BOOST_TEST_CONTEXT(each.describe() << " of " << dtype << " " << at::IntArrayRef(one.sizes)) {
          at::manual_seed(3);
          By whole = by("key", each);
          Where masked = where("mask", each);
          std::vector<Any> separate(3, each);
          for (int batch = 0; batch < 4; ++batch) {
            const at::IntArrayRef leading(one.sizes.data(), static_cast<std::size_t>(one.dims));
            const at::Tensor x = at::randn(one.sizes).mul(3).to(dtype);
            at::Tensor key = at::randint(-1, 3, leading, at::kLong);
            if (batch == 2) key = std::get<0>(key.flatten().sort()).view(leading);  // neighbours
            const Context named({{"key", key}, {"mask", key == 1}});
            whole.update(x);
            masked.update(x);
            for (std::int64_t k = 0; k < 3; ++k) {
              const at::Tensor rows = (key == k).flatten().nonzero().flatten();
              if (rows.numel() != 0)
                separate[static_cast<std::size_t>(k)].update(
                    x.flatten(0, one.dims - 1).index_select(0, rows));
            }
          }
          for (std::int64_t k = 0; k < 3; ++k)
            BOOST_TEST((whole.at(k).results() == separate[static_cast<std::size_t>(k)].results()));
          BOOST_TEST((masked.inner().results() == separate[1].results()));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(keys_may_be_large_and_in_any_order) {
  at::manual_seed(4);
  const at::Tensor some =
      at::tensor({std::int64_t{1} << 40, std::int64_t{3}, std::int64_t{70000}, std::int64_t{-5}});
  By sums = by("key", Sum(SumOptions().over({0})));
  std::vector<at::Tensor> xs, keys;
  for (int batch = 0; batch < 3; ++batch) {
    xs.push_back(at::randn({40, 20}));
    keys.push_back(some.index_select(0, at::randint(4, {40}, at::kLong)));
    const Context named("key", keys.back());
    sums.update(xs.back());
  }
  const at::Tensor x = at::cat(xs), key = at::cat(keys);
  BOOST_TEST(sums.keys() == std::vector<std::int64_t>({3, 70000, std::int64_t{1} << 40}));
  for (const std::int64_t k : sums.keys())
    BOOST_TEST(close(sums.at(k).results().at("value"), x.index({key == k}).sum(0), 1e-5));
  BOOST_TEST(sums.left_out() == key.eq(-5).sum().item<std::int64_t>());
  By copy = sums;  // has groups of its own
  const Context named("key", at::tensor({3, 70000}));
  copy.update(at::ones({2, 20}));
  BOOST_TEST(copy.count() == sums.count() + 2);
  BOOST_TEST(sums.at(3).count() == key.eq(3).sum().item<std::int64_t>());
  sums.merge(copy);
  sums.update(at::ones({2, 20}));
  BOOST_TEST(sums.at(3).count() == 2 * key.eq(3).sum().item<std::int64_t>() + 2);
}

BOOST_AUTO_TEST_CASE(where_has_the_bits_of_indexing_by_the_mask) {
  at::manual_seed(6);
  for (const Any& each : each_of_many()) {
    BOOST_TEST_CONTEXT(each.describe()) {
      Where masked = where("mask", each);
      Any indexed = each;
      std::int64_t left_out = 0;
      for (int i = 0; i < 6; ++i) {
        const at::Tensor x = at::randn({4, 5, 3}), mask = at::rand({4, 5}) < (i == 0   ? -1.0
                                                                              : i == 1 ? 2.0
                                                                                       : 0.6);
        const Context named("mask", mask);
        masked.update(x);
        if (mask.any().item<bool>()) indexed.update(x.index({mask}));
        left_out += mask.logical_not().sum().item<std::int64_t>();
      }
      BOOST_TEST((masked.inner().results() == indexed.results()));
      BOOST_TEST(masked.left_out() == left_out);
      BOOST_TEST(masked.results().at("mask.left_out").item<std::int64_t>() == left_out);
      const auto saved = torchtap::core::save(masked).value();
      BOOST_TEST((restore(saved).results() == masked.results()));
    }
  }
}

BOOST_AUTO_TEST_CASE(keys_are_of_any_whole_type_and_shape) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({3, 4, 5});
  for (const auto dtype : {at::kChar, at::kByte, at::kShort, at::kInt, at::kLong, at::kBool}) {
    for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{3}, {3, 4}, {3, 4, 5}}) {
      const at::Tensor key = at::randint(2, sizes, at::kLong).to(dtype);
      By sums = by("key", 2, Sum(SumOptions().over({0})));
      const Context named("key", key);
      sums.update(x);
      for (int one = 0; one < 2; ++one) {
        const at::Tensor rows = x.index({key == one});
        if (rows.size(0) != 0) BOOST_TEST(close(sums.results().at("value")[one], rows.sum({0}), 1e-5));
      }
    }
  }
  By whole = by("key", Sum(SumOptions().over({0})));
  const Context named("key", at::scalar_tensor(7, at::kLong));
  whole.update(x);
  BOOST_TEST(close(whole.results().at("value")[0], x.sum({0}), 1e-6));
  By none = by("key", Sum(SumOptions().over({0})));
  const Context empty("key", at::empty({0}, at::kLong));
  none.update(at::empty({0, 3}));
  BOOST_TEST(none.results().empty());
}

BOOST_AUTO_TEST_CASE(results_have_keys_counts_and_rows_of_each) {
  By dense = by("labels", 5, Series(Mean(MeanOptions().over({0})), Count(CountOptions().over({0}))));
  const at::Tensor x = at::arange(8, at::kFloat).view({4, 2});
  {
    const Context named("labels", at::tensor({3, -1, 3, 1}));
    dense.update(x);
  }
  const Results results = dense.results();
  BOOST_TEST(results.at("labels").equal(at::arange(5)));
  BOOST_TEST(results.at("labels.count").equal(at::tensor({0, 1, 0, 2, 0})));
  BOOST_TEST(results.at("labels.left_out").item<std::int64_t>() == 1);
  BOOST_TEST(results.at("mean.value")[3].equal(x.index_select(0, at::tensor({0, 2})).mean(0)));
  BOOST_TEST(results.at("mean.value")[0].isnan().all().item<bool>());
  BOOST_TEST(results.at("count.rows")[0].eq(0).all().item<bool>());
  By counts = by("labels", LogHistogram(LogHistogramOptions().over_all(true)));
  const Context named("labels", at::tensor({3, 3, 3, 1}));
  counts.update(x);
  BOOST_TEST(counts.results().contains("counts.3"));
  BOOST_TEST(!counts.results().contains("counts"));
}

BOOST_AUTO_TEST_CASE(words_inside_one_another_choose_rows_of_inner_companions) {
  at::manual_seed(8);
  const at::Tensor x = at::randn({4, 6, 3}), tokens = at::randint(3, {4, 6}, at::kLong),
                   sequences = at::randint(2, {4}, at::kLong), mask = at::rand({4, 6}) < 0.5;
  const Context named({{"mask", mask}, {"token", tokens}, {"sequence", sequences}});
  const Sum sum(SumOptions().over({0}));
  By outer = by("token", where("mask", sum));
  outer.update(x);
  Where inner = where("mask", by("token", by("sequence", sum)));
  inner.update(x);
  const auto* const by_token = inner.inner().get<By>();
  for (const std::int64_t token : by_token->keys()) {
    BOOST_TEST(
        close(outer.at(token).results().at("value"), x.index({mask & (tokens == token)}).sum(0), 1e-6));
    const auto* const by_sequence = by_token->at(token).get<By>();
    for (const std::int64_t sequence : by_sequence->keys()) {
      const at::Tensor chosen = mask & (tokens == token) & (sequences == sequence).unsqueeze(1);
      BOOST_TEST(close(by_sequence->at(sequence).results().at("value"), x.index({chosen}).sum(0), 1e-6));
    }
  }
}

BOOST_AUTO_TEST_CASE(errors_name_the_call_and_change_nothing) {
  By mean(ByOptions("labels").most(2), Mean(MeanOptions().over({0})));
  const at::Tensor x = at::randn({3, 2});
  const auto with = [&](const at::Tensor& key, const at::Tensor& sample) {
    return error_of([&] {
      const Context named("labels", key);
      mean.update(sample);
    });
  };
  BOOST_TEST(with(at::tensor({0, 1, 0}), x) == "");
  const Results before = mean.results();
  const Context other("mask", x);
  BOOST_TEST(contains(error_of([&] { mean.update(x); }), "By::update: nothing is called \"labels\""));
  BOOST_TEST(contains(with(at::zeros({3}), x), "to(torch::kLong)"));
  const std::string shapes = with(at::zeros({4}, at::kLong), x);
  BOOST_TEST((contains(shapes, "[4]") && contains(shapes, "[3, 2]")));
  BOOST_TEST(
      contains(with(at::tensor({0, 1, 2}), x), "with key 2, \"labels\" has more than 2 different keys"));
  BOOST_TEST(contains(with(at::tensor({0, 1, 1}), at::randn({3, 5})), "shape"));
  BOOST_TEST(contains(with(at::tensor({0, 1, 1}), at::Tensor()), "undefined"));
  BOOST_TEST((mean.results() == before));
  By dense = by("labels", 2, Mean(MeanOptions().over({0})));
  const Context named("labels", at::tensor({0, 1, 2}));
  BOOST_TEST(contains(error_of([&] { dense.update(x); }), "key 2; expected keys below 2"));
  BOOST_TEST(dense.results().empty());
  Where masked = where("labels", Mean());
  BOOST_TEST(contains(error_of([&] { masked.update(x); }), "to(torch::kBool)"));
  BOOST_CHECK_THROW(by("labels", 0, Mean()).merge(by("labels", 3, Mean())), c10::ValueError);
  BOOST_CHECK_THROW(by("labels", Mean()).merge(by("classes", Mean())), c10::ValueError);
  BOOST_CHECK_THROW(By(ByOptions("labels", -1), Mean()), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(a_group_that_throws_leaves_all_groups_unchanged) {
  By picky = by("key", Series(Picky(), Sum(SumOptions().over({0}))));
  const Context named("key", at::arange(5));
  picky.update(at::ones({5, 2}));
  const Results before = picky.results();
  BOOST_CHECK_THROW(picky.update(at::tensor({0.0, 1.0, 777.0, 3.0, 4.0}).view({5, 1}).expand({5, 2})),
                    c10::ValueError);
  BOOST_TEST((picky.results() == before));
}

BOOST_AUTO_TEST_CASE(an_element_that_is_refused_in_one_group_leaves_all_groups_unchanged) {
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{5, 4}, {5, 2, 40, 40}}) {
    const std::vector<std::int64_t> over =
        sizes.size() == 2 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, 2, 3};
    By strict = by("key", Series(Moments(MomentsOptions().over(over).non_finite(NonFinite::raise)),
                                 Count(CountOptions().over(over))));
    at::Tensor x = at::randn(sizes);
    const Context named("key", at::tensor({4, 0, 2, 2, 1}));
    strict.update(x);
    const Results before = strict.results();
    x[3].fill_(std::numeric_limits<float>::infinity());
    BOOST_TEST(contains(error_of([&] { strict.update(x); }), "Moments::update: expected finite numbers"));
    BOOST_TEST((strict.results() == before));
    BOOST_CHECK_THROW(strict.update(at::randn({5, 3})), c10::Error);
    BOOST_TEST((strict.results() == before));
  }
}

BOOST_AUTO_TEST_CASE(combinators_that_lose_companions_refuse_them) {
  BOOST_TEST(contains(error_of([] { window(2, by("a", Mean())); }), "window"));
  BOOST_TEST(contains(error_of([] { over({0}, every(2, where("a", Mean()))); }), "\"a\""));
  BOOST_TEST(contains(error_of([] { by("a", Series(Mean(), by("a", Mean()))); }), "\"a\", too"));
  BOOST_TEST(contains(error_of([] { where("a", by("a", Mean())); }), "\"a\", too"));
}

/// Notes facts, and writes tensors as a file has them.
struct Noted final : torchtap::core::OutputArchive, torchtap::core::extend::StateOutput {
  using torchtap::core::OutputArchive::PortableBinaryOutputArchive;
  void inside(bool) noexcept override {}
  void declare(std::vector<std::int64_t>&) override {}
  void flatten() override {}
  void put(const at::Tensor& tensor) override {
    static_cast<torchtap::core::OutputArchive&> (*this)(torchtap::core::extend::pack(tensor));
  }
};

BOOST_AUTO_TEST_CASE(states_of_ranks_that_saw_other_keys_say_the_same_number_of_things) {
  const auto facts = [](const std::vector<std::int64_t>& keys) {
    By mean = by("labels", Series(Mean(MeanOptions().over({0})), Count(CountOptions().over({0}))));
    const Context named("labels", at::tensor(keys));
    mean.update(at::ones({static_cast<std::int64_t>(keys.size()), 3}));
    std::ostringstream stream;
    Noted writer(stream);
    mean.save(writer);
    std::vector<std::string> all;
    for (const auto& fact : writer.facts) all.push_back(fact.what + (fact.shaped ? " shaped" : ""));
    return all;
  };
  BOOST_TEST(facts({1}) == facts({0, 2, 5}));
  BOOST_TEST(facts({-1}).size() == facts({0, 2, 5}).size());
}

BOOST_AUTO_TEST_CASE(damaged_states_are_errors) {
  By mean = by("labels", Mean(MeanOptions().over({0})));
  const Context named("labels", at::tensor({1, 2}));
  mean.update(at::ones({2, 3}));
  const auto saved = torchtap::core::save(mean).value();
  for (std::size_t size = 0; size < saved.bytes.size(); ++size)
    BOOST_CHECK_THROW(restore({saved.recipe, saved.bytes.substr(0, size)}), c10::Error);
  By swapped = by("labels", Mean(MeanOptions().over({0})));
  const std::string& bytes = saved.bytes;
  const std::string first("\x01\0\0\0\0\0\0\0", 8), second("\x02\0\0\0\0\0\0\0", 8);
  std::size_t errors = 0;  // where the second key becomes the first again
  for (auto at = bytes.find(second); at != std::string::npos; at = bytes.find(second, at + 1)) {
    auto damaged = bytes;
    damaged.replace(at, 8, first);
    try {
      restore({saved.recipe, damaged});
    } catch (const c10::ValueError&) {
      ++errors;
    }
  }
  BOOST_TEST(errors >= 1);
}

BOOST_AUTO_TEST_SUITE_END()
