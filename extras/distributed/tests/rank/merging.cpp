// Scenarios: every reduction and combinator, merged by ranks and by one process that merges in the same
// order.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <torchtap/core/context.hpp>
#if TORCHTAP_TEST_QUANTIZATION
#include <torchtap/quantization/formats.hpp>
#endif
#include <torchtap/reductions/reductions.hpp>

#include "support.hpp"

namespace rank_test {
namespace {

using namespace torchtap::reductions;

/// A stream that drifts, so that a wrong term between ranks cannot cancel out. Rank `rank` has every
/// `size`-th sample.
std::vector<at::Tensor> shard(int rank, int size, std::int64_t columns = 6) {
  const auto generator = at::detail::createCPUGenerator(11);
  std::vector<at::Tensor> samples;
  for (int i = 0; i < 56; ++i) {
    const at::Tensor sample = at::randn({5, columns}, generator) * (1 + i % 3) + 0.25 * i;
    if (i % size == rank) samples.push_back(sample);
  }
  return samples;
}

/// Compares one reduction, merged by all ranks, with the same merged in this process.
struct Check {
  tap::distributed::Group group;
  tap::distributed::MergeRanksOptions options;

  template <class R>
  void operator()(const std::string& name, const R& blank) const {
    R mine = fed(blank, group.rank());
    tap::distributed::merge_ranks(mine, group, options);
    R expected = fed(blank, 0);
    for (int rank = 1; rank < group.size(); ++rank) expected.merge(fed(blank, rank));
    const bool same = state_of(mine) == state_of(expected) && mine.results() == expected.results();
    say(name, " ", digest(state_of(mine)), " ", same ? "same" : "DIFFERS", " ", mine.count());
  }
  template <class R>
  R fed(const R& blank, int rank) const {
    R reduction = blank;
    // The last of several ranks has no data.
    if (rank != 0 && rank == group.size() - 1) return reduction;
    for (const at::Tensor& sample : shard(rank, group.size())) reduction.update(sample);
    return reduction;
  }
};

/// A reduction of a user's own.
class Longest {
 public:
  void update(const at::Tensor& sample) {
    norm_ = std::max(norm_, sample.norm().item<double>());
    ++count_;
  }
  void merge(const Longest& other) {
    norm_ = std::max(norm_, other.norm_);
    count_ += other.count_;
  }
  std::int64_t count() const { return count_; }
  tap::core::Results results() const { return {{"norm", at::scalar_tensor(norm_, at::kDouble)}}; }
  template <class Archive>
  void serialize(Archive& archive) {
    archive(norm_, count_);
  }

 private:
  double norm_ = 0;
  std::int64_t count_ = 0;
};

void every_reduction(const Check& check) {
  const ParseOptions rows = ParseOptions().over({0}), elements = ParseOptions().over_all(true);
  for (const std::string text : {"sum",         "mean",          "moments",
                                 "moments:2",   "min",           "max",
                                 "abs_max",     "norm",          "norm:3",
                                 "count",       "first",         "last",
                                 "ema",         "ema:0.99",      "histogram:16:-4:4",
                                 "histogram:8", "log_histogram", "log_histogram:5",
                                 "quantiles",   "top_k:3",       "reservoir:7",
                                 "blocks"}) {
    check(text, parse(text));
    if (text != "blocks") check(text + "-rows", parse(text, rows));
    check(text + "-elements", parse(text, elements));
  }
#if TORCHTAP_TEST_QUANTIZATION
  check("formats", tap::quantization::Formats(tap::quantization::FormatsOptions().over_all(true)));
  check("formats-rows", tap::quantization::Formats(tap::quantization::FormatsOptions({"e4m3"}).over({0})));
#endif
  for (const std::string text : {"covariance", "gram"}) check(text + "-rows", parse(text, rows));
  for (const auto& entry : catalogue()) say("catalogue ", entry.name);
}

void every_combinator(const Check& check) {
  check("own-moments", Moments(MomentsOptions().over({0})));
  check("own-covariance", Covariance(CovarianceOptions().over({0})));
  check("own-quantiles", Quantiles(QuantilesOptions().over_all(true)));
  check("series", Series(Moments(), LogHistogram(LogHistogramOptions().over_all(true)), Last()));
  check("any-series", AnySeries({Moments(), Min(), Count()}));
  check("window", window(4, Mean(MeanOptions().over({0}))));
  check("over", over({0}, Sum()));
  check("map", map([](const at::Tensor& x) { return x.abs(); }, Moments()));
  check("nested", Series(window(3, Max()), over({0}, Series(Mean(), Norm())),
                         map([](const at::Tensor& x) { return x.exp(); }, Histogram(HistogramOptions(16)))));
  check("omit", Moments(MomentsOptions().over_all(true).non_finite(NonFinite::omit)));
  check("own-type", Longest());
  check("callable",
        tap::core::Fold([](const at::Tensor& a, const at::Tensor& b) { return at::maximum(a, b); }));
  // Every n-th sample merges if the ranks before saw a multiple of n.
  if (56 % check.group.size() == 0) check("every", every(56 / check.group.size(), Mean()));
}

/// The arithmetic, against plain LibTorch.
void against_torch(const Check& check) {
  Moments moments(MomentsOptions().over({0}));
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < check.group.size(); ++rank) {
    for (const at::Tensor& sample : shard(rank, check.group.size())) {
      if (rank == check.group.rank()) moments.update(sample);
      all.push_back(sample);
    }
  }
  tap::distributed::merge_ranks(moments, check.group, check.options);
  const at::Tensor whole = at::cat(all).to(at::kDouble);
  const at::Tensor got = moments.results().at("variance").to(at::kDouble);
  say("variance-error ", ((got - whole.var(0)).abs() / whole.var(0)).max().item<double>());
  say("variance-count ", moments.count(), " ", whole.size(0));
}

Check check_of(tap::distributed::MergeRanksOptions options) {
  if (!variable("RANKS_ROOT").empty()) options.root(std::stoi(variable("RANKS_ROOT")));
  return {make_group(std::chrono::seconds(60)), options.timeout(std::chrono::seconds(60))};
}

/// Ranks that saw keys of their own: rank r keys 3 r, 3 r + 1 and, as all, 100; no rank saw all, and one saw
/// none.
void disjoint_keys() {
  const Check check = check_of({});
  const int size = check.group.size();
  const auto keys_of = [](int rank, std::int64_t i) {
    return at::tensor({3 * rank, -1, 3 * rank + 1, i % 7 == 0 ? 100 : -1, 3 * rank}, at::kLong);
  };
  const auto fed = [&](const Any& blank, int rank) {
    Any reduction = blank;
    std::int64_t i = 0;
    if (rank != 0 && rank == size - 1) return reduction;
    for (const at::Tensor& sample : shard(rank, size)) {
      const tap::core::Context named({{"key", keys_of(rank, i++)},
                                      {"mask", sample.select(1, 0).gt(0)},
                                      {"other", sample.sin().slice(1, 0, 2)}});
      reduction.update(sample);
    }
    return reduction;
  };
  const auto rows = ParseOptions().over({0});
  for (const std::string text :
       {"by(key, moments, count, max)", "by(key:200, mean)", "where(mask, moments)",
        "where(mask, by(key, log_histogram, quantiles))", "by(key, where(mask, covariance))",
        "joint(other, covariance)", "cross_covariance(other)", "cka(other)",
        "by(key, cross_covariance(other), joint(other, moments))"}) {
    const Any blank = parse(text, rows);
    Any mine = fed(blank, check.group.rank());
    tap::distributed::merge_ranks(mine, check.group, check.options);
    Any expected = fed(blank, 0);
    for (int rank = 1; rank < size; ++rank) expected.merge(fed(blank, rank));
    const bool same = state_of(mine) == state_of(expected) && mine.results() == expected.results();
    say(text, " ", digest(state_of(mine)), " ", same ? "same" : "DIFFERS", " ", mine.count());
    if (text.find("by(key, moments") != 0) continue;
    // Against plain LibTorch: the keys of all ranks that saw some, and how often each came.
    const auto results = mine.results();
    at::Tensor counts = at::zeros({200}, at::kLong);
    std::int64_t negative = 0;
    for (int rank = 0; rank < size - (size > 1 ? 1 : 0); ++rank) {
      const auto number = static_cast<std::int64_t>(shard(rank, size).size());
      for (std::int64_t i = 0; i < number; ++i) {
        const at::Tensor keys = keys_of(rank, i);
        counts += keys.masked_select(keys.ge(0)).bincount({}, 200);
        negative += keys.lt(0).sum().item<std::int64_t>();
      }
    }
    const at::Tensor came = counts.nonzero().flatten();
    const bool right = results.at("key").equal(came) &&
                       results.at("key.count").equal(counts.index_select(0, came)) &&
                       results.at("key.left_out").item<std::int64_t>() == negative;
    say("keys ", came.numel(), " ", right ? "right" : "DIFFERS");
  }
}

/// A user's reduction of independent elements, which counts its merges in this process. Its sums of whole
/// numbers are exact in any order.
class Added {
 public:
  inline static int merges = 0;

  void update(const at::Tensor& sample) {
    sizes_ = sample.sizes().vec();
    sum_ = sum_.defined() ? at::add(sum_, sample.round()) : sample.round();
    ++count_;
  }
  void merge(const Added& other) {
    ++merges;
    if (other.count_ == 0) return;
    sizes_ = other.sizes_;
    sum_ = sum_.defined() ? at::add(sum_, other.sum_) : other.sum_.clone();
    count_ += other.count_;
  }
  std::int64_t count() const { return count_; }
  tap::core::Results results() const {
    return count_ == 0 ? tap::core::Results{} : tap::core::Results{{"sum", sum_.clone()}};
  }
  template <class Archive>
  void serialize(Archive& archive) {
    tap::core::Elementwise elementwise(archive);
    archive(count_, sizes_);
    elementwise.sizes(sizes_);
    archive(sum_);
  }

 private:
  std::int64_t count_ = 0;
  std::vector<std::int64_t> sizes_;
  at::Tensor sum_;
};

/// The largest element so far, and the sum over it: not elementwise, and not declared to be.
class Scaled {
 public:
  void update(const at::Tensor& sample) {
    largest_ = std::max(largest_, sample.max().item<double>());
    sum_ = sum_.defined() ? at::add(sum_, sample) : sample.clone();
    ++count_;
  }
  void merge(const Scaled& other) {
    if (other.count_ == 0) return;
    sum_ = sum_.defined() ? at::add(sum_, other.sum_) : other.sum_.clone();
    largest_ = std::max(largest_, sum_.max().item<double>());
    count_ += other.count_;
  }
  std::int64_t count() const { return count_; }
  tap::core::Results results() const {
    return count_ == 0 ? tap::core::Results{} : tap::core::Results{{"value", at::mul(sum_, largest_)}};
  }
  template <class Archive>
  void serialize(Archive& archive) {
    archive(count_, largest_, sum_);
  }

 private:
  std::int64_t count_ = 0;
  double largest_ = 0;
  at::Tensor sum_;
};

/// States so large that ranks share the work, by elements where the reduction allows it.
struct SharedCheck {
  Check check;

  template <class R>
  void operator()(const std::string& name, const R& blank) const {
    const auto& group = check.group;
    const auto fed = [&](int rank) {
      R reduction = blank;
      for (int i = 0; i < 2 && (rank != 2 || i == 0); ++i) {
        at::Tensor sample =
            at::randn({3, 100000}, at::detail::createCPUGenerator(17 * rank + i)) * (i + 1) + rank;
        sample.masked_fill_(sample.gt(3.5), std::numeric_limits<double>::infinity());
        if (rank != 1 || group.size() == 2) reduction.update(sample);  // rank 1 has no data
      }
      return reduction;
    };
    R mine = fed(group.rank());
    const int before = Added::merges;
    tap::distributed::merge_ranks(mine, group, check.options);
    const int merges = Added::merges - before;
    if (merges != 0) say(name, "-merges ", merges);
    R expected = fed(0);
    for (int rank = 1; rank < group.size(); ++rank) expected.merge(fed(rank));
    const bool same = state_of(mine) == state_of(expected) && mine.results() == expected.results();
    say(name, " ", digest(state_of(mine)), " ", same ? "same" : "DIFFERS", " ", mine.count());
  }
};

void shared_states() {
  using tap::distributed::Order;
  const bool tree = variable("RANKS_ORDER") == "tree";
  const SharedCheck check{
      check_of(tap::distributed::MergeRanksOptions().order(tree ? Order::tree : Order::ranks))};
  check("added", Added());
  check("extrema", Series(Min(), Max(), AbsMax(), First(), Last()));
  check("count", Series(Max(), Count(), LogHistogram(LogHistogramOptions().over_all(true)),
                        Max(MaxOptions().over({1}))));
  check("histogram", Histogram(HistogramOptions(2, -2, 2)));
  if (tree) return;  // sums of another order have other last bits
  for (const std::string text : {"sum", "mean", "moments", "moments:2", "norm", "norm:3", "ema"}) {
    check(text, parse(text));
  }
  check("mean-omit", Mean(MeanOptions().non_finite(NonFinite::omit)));
  check("moments-omit", Moments(MomentsOptions().non_finite(NonFinite::omit)));
  check("growing", Histogram(HistogramOptions(2)));
  check("two-shapes", Series(Moments(), Mean(MeanOptions().over({0}))));
  check("scaled", Series(Max(), Scaled()));
  check("window", window(2, Mean()));
}

/// Large tensors beside the bytes, of several pieces, and of several modules' kinds.
void large_states() {
  const Check check = check_of({});
  const std::int64_t columns = std::stoll(variable("RANKS_COLUMNS", "3300000"));
  const auto of = [&](int rank) {
    Series reduction{Moments(), Max(), First()};
    for (int i = 0; i < 2; ++i) reduction.update(at::arange(columns, at::kFloat) * (0.001 * (rank + 1)) + i);
    return reduction;
  };
  auto mine = of(check.group.rank());
  tap::distributed::merge_ranks(mine, check.group, check.options);
  auto expected = of(0);
  for (int rank = 1; rank < check.group.size(); ++rank) expected.merge(of(rank));
  say("bytes ", state_of(expected).size());
  say("large ", digest(state_of(mine)), " ", state_of(mine) == state_of(expected) ? "same" : "DIFFERS");
}

/// More than 2 GiB in one state. Compared by element, since bytes of it would take as much again.
void huge_state() {
  const Check check = check_of({});
  const std::int64_t columns = std::stoll(variable("RANKS_COLUMNS"));
  Sum sum;
  sum.update(at::full({columns}, static_cast<double>(check.group.rank() + 1), at::kDouble));
  tap::distributed::merge_ranks(sum, check.group, check.options);
  const at::Tensor total = sum.results().at("value");
  const double expected = check.group.size() * (check.group.size() + 1) / 2.0;
  say("huge ", total.nbytes(), " ", total.eq(expected).all().item<bool>() ? "right" : "WRONG");
}

void repeated() {
  const Check check = check_of({});
  const auto fed =
      check.fed(Series(Moments(), LogHistogram(), Quantiles(QuantilesOptions().over_all(true)), EMA()),
                check.group.rank());
  std::map<std::string, int> digests;
  for (int i = 0; i < 100; ++i) {
    auto copy = fed;
    tap::distributed::merge_ranks(copy, check.group, check.options);
    ++digests[digest(state_of(copy))];
  }
  say("digests ", digests.size(), " ", digests.begin()->first, " ", digests.begin()->second);
}

}  // namespace

void add_merging(std::map<std::string, Scenario>& all) {
  all["catalogue"] = [] {
    const Check check = check_of({});
    every_reduction(check);
    every_combinator(check);
    against_torch(check);
  };
  all["combinators"] = [] { every_combinator(check_of({})); };
  all["tree"] = [] {
    // Another order of the same merges, so other last bits: compared with plain LibTorch, and among ranks.
    const Check check = check_of(tap::distributed::MergeRanksOptions().order(tap::distributed::Order::tree));
    against_torch(check);
    auto last = check.fed(Series(Last(), First(), Count()), check.group.rank());
    auto expected = check.fed(Series(Last(), First(), Count()), 0);
    for (int rank = 1; rank < check.group.size(); ++rank) {
      expected.merge(check.fed(Series(Last(), First(), Count()), rank));
    }
    tap::distributed::merge_ranks(last, check.group, check.options);
    say("order ", digest(state_of(last)), " ", state_of(last) == state_of(expected) ? "same" : "DIFFERS");
    auto moments = check.fed(Moments(), check.group.rank());
    tap::distributed::merge_ranks(moments, check.group, check.options);
    say("moments ", digest(state_of(moments)));
  };
  all["root-only"] = [] {
    const Check check = check_of(tap::distributed::MergeRanksOptions().everywhere(false));
    auto mine = check.fed(Moments(), check.group.rank());
    const std::string before = state_of(mine);
    tap::distributed::merge_ranks(mine, check.group, check.options);
    say("changed ", state_of(mine) == before ? "no" : "yes", " ", mine.count());
  };
  all["disjoint-keys"] = disjoint_keys;
  all["large"] = large_states;
  all["shared"] = shared_states;
  all["huge"] = huge_state;
  all["repeated"] = repeated;
}

}  // namespace rank_test
