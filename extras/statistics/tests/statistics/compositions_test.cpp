// Random compositions of reductions by key, by mask and of two tensors: against separate reductions that are
// given rows which LibTorch's indexing chose.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(compositions)

using namespace torchtap::reductions;
using torchtap::core::Context;
using torchtap_test::error_of;

namespace {

using Names = std::map<std::string, at::Tensor>;

/// The rows of `tensor` where `which` is true. A tensor of fewer dimensions belongs to all rows below.
at::Tensor rows_where(const at::Tensor& tensor, const at::Tensor& which) {
  if (which.dim() == 0) return tensor;
  if (tensor.dim() >= which.dim())
    return tensor.index({which}).contiguous();  // else it has the sample's strides
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes.resize(static_cast<std::size_t>(which.dim()), 1);
  return tensor.view(sizes).expand(which.sizes()).index({which});
}

Names rows_where(const Names& names, const at::Tensor& which) {
  Names all;
  for (const auto& [name, tensor] : names) all[name] = rows_where(tensor, which);
  return all;
}

/// What a composition does, by separate reductions.
struct Node {
  enum class Kind { leaf, where, by, joint, every, series };
  Kind kind;
  std::string name{};         // of the companion
  std::vector<Any> leaf{};    // one, of a leaf
  std::vector<Node> inner{};  // without samples in `by`
  std::map<std::int64_t, Node> groups{};
  std::int64_t n = 0, seen = 0, left_out = 0;

  void update(const at::Tensor& x, const Names& names) {
    if (kind == Kind::leaf) {
      leaf.front().update(x);
    } else if (kind == Kind::where) {
      const at::Tensor& mask = names.at(name);
      left_out += mask.logical_not().sum().item<std::int64_t>();
      if (mask.any().item<bool>()) inner.front().update(rows_where(x, mask), rows_where(names, mask));
    } else if (kind == Kind::by) {
      const at::Tensor key = names.at(name).to(at::kLong);
      left_out += key.lt(0).sum().item<std::int64_t>();
      for (std::int64_t k = 0; k < 6; ++k) {
        const at::Tensor which = key.eq(k);
        if (!which.any().item<bool>()) continue;
        const auto group = groups.emplace(k, inner.front()).first;
        const at::Tensor rows =
            which.dim() == 0
                ? x
                : x.flatten(0, which.dim() - 1).index_select(0, which.flatten().nonzero().flatten());
        group->second.update(rows, rows_where(names, which));
      }
    } else if (kind == Kind::joint) {
      const at::Tensor& y = names.at(name);
      const auto matrix = [&](const at::Tensor& t) { return t.reshape({x.size(0), t.numel() / x.size(0)}); };
      const auto dtype = at::promote_types(x.scalar_type(), y.scalar_type());
      inner.front().update(at::cat({matrix(x).to(dtype), matrix(y).to(dtype)}, 1), names);
    } else if (kind == Kind::every) {
      if (seen++ % n == 0) inner.front().update(x, names);
    } else {
      for (Node& one : inner) one.update(x, names);
    }
  }
  void merge(const Node& other) {
    left_out += other.left_out;
    for (std::size_t i = 0; i < leaf.size(); ++i) leaf[i].merge(other.leaf[i]);
    for (std::size_t i = 0; i < inner.size(); ++i) inner[i].merge(other.inner[i]);
    for (const auto& [key, group] : other.groups) {
      const auto [mine, is_new] = groups.emplace(key, group);
      if (!is_new) mine->second.merge(group);
    }
  }
  /// Whether `whole` has the same results, bit for bit.
  bool equals(const Any& whole) const {
    if (kind == Kind::leaf) return whole.results() == leaf.front().results();
    if (const auto* const one = whole.get<Where>())
      return kind == Kind::where && one->left_out() == left_out && inner.front().equals(one->inner());
    if (const auto* const one = whole.get<Joint>())
      return kind == Kind::joint && inner.front().equals(one->inner());
    if (const auto* const one = whole.get<Every<Any>>())
      return kind == Kind::every && inner.front().equals(one->inner());
    bool same = true;
    if (const auto* const all = whole.get<AnySeries>()) {
      for (std::size_t i = 0; i < inner.size(); ++i) same = same && inner[i].equals(all->at(i));
      return kind == Kind::series && same;
    }
    const auto* const by = whole.get<By>();
    if (by == nullptr || by->left_out() != left_out || by->keys().size() != groups.size()) return false;
    for (const auto& [key, group] : groups) same = same && group.equals(by->at(key));
    return same;
  }
};

struct Composition {
  Any whole;
  Node parts;
  bool merges = true;  // `every` does so after a multiple of its number alone
};

Any leaf(std::mt19937& random) {
  const bool all = random() % 3 == 0;
  const auto of = [&](auto options) { return all ? options.over_all(true) : options.over({0}); };
  switch (random() % 16) {
    case 0:
      return Moments(of(MomentsOptions()));
    case 1:
      return Moments(of(MomentsOptions().order(2)).non_finite(NonFinite::omit));
    case 2:
      return Mean(of(MeanOptions()));
    case 3:
      return Sum(of(SumOptions()));
    case 4:
      return Max(of(MaxOptions()));
    case 5:
      return AbsMax(of(AbsMaxOptions()));
    case 6:
      return Count(of(CountOptions()));
    case 7:
      return Norm(of(NormOptions()));
    case 8:
      return EMA(of(EMAOptions(0.75)));
    case 9:
      return Covariance(CovarianceOptions().over({0}));
    case 10:
      return Histogram(of(HistogramOptions(16, -3, 3)));
    case 11:
      return LogHistogram(of(LogHistogramOptions()));
    case 12:
      return Quantiles(of(QuantilesOptions()));
    case 13:
      return TopK(of(TopKOptions(2)));
    case 14:
      return Reservoir(of(ReservoirOptions(3)));
    default:
      return window(2, Any(Mean(of(MeanOptions()))));
  }
}

/// Words are around one another and around a leaf. Companions are called after their level.
Composition compose(std::mt19937& random, int depth, int level = 0) {
  if (depth == 0) {
    const Any one = leaf(random);
    return {one, {Node::Kind::leaf, "", {one}}};
  }
  const auto in = [&](Any whole, Node node, Composition inner) {
    node.inner.push_back(std::move(inner.parts));
    return Composition{std::move(whole), std::move(node), inner.merges};
  };
  const std::string at = std::to_string(level);
  const auto word = random() % 7;
  if (word < 2) {
    Composition inner = compose(random, depth - 1, level + 1);
    Any whole = where("mask" + at, inner.whole);
    return in(std::move(whole), {Node::Kind::where, "mask" + at}, std::move(inner));
  }
  if (word < 4) {
    Composition inner = compose(random, depth - 1, level + 1);
    Any whole = random() % 2 == 0 ? by("key" + at, inner.whole) : by("key" + at, 4, inner.whole);
    return in(std::move(whole), {Node::Kind::by, "key" + at}, std::move(inner));
  }
  if (word == 4) {
    Composition inner = compose(random, depth - 1, level + 1);
    Any whole = every(2, inner.whole);
    inner.merges = false;
    Node node{Node::Kind::every};
    node.n = 2;
    return in(std::move(whole), std::move(node), std::move(inner));
  }
  if (word == 5) {
    Composition a = compose(random, depth - 1, level + 1), b = compose(random, depth - 1, level + 1);
    Composition series{AnySeries({a.whole, b.whole}), {Node::Kind::series}, a.merges && b.merges};
    series.parts.inner = {std::move(a.parts), std::move(b.parts)};
    return series;
  }
  Composition inner = compose(random, 0);  // its rows have one dimension, so companions inside would not fit
  Any whole = joint("other", inner.whole);
  return in(std::move(whole), {Node::Kind::joint, "other"}, std::move(inner));
}

/// Samples of one kind, and companions of each level beside them.
struct Data {
  at::ScalarType dtype, keys;
  std::int64_t dims;
  std::vector<std::int64_t> of_mask, of_key;  // how many dimensions, by level

  explicit Data(std::mt19937& random) {
    const at::ScalarType dtypes[] = {at::kFloat,    at::kFloat, at::kDouble, at::kHalf,
                                     at::kBFloat16, at::kLong,  at::kInt,    at::kByte};
    const at::ScalarType whole[] = {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool};
    dtype = dtypes[random() % 8];
    keys = whole[random() % 6];
    dims = 1 + static_cast<std::int64_t>(random() % 3);
    const auto any = [&] {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(dims + 1));
    };
    for (int level = 0; level < 3; ++level) {
      of_mask.push_back(any());
      of_key.push_back(any());
    }
  }
  at::Tensor sample(std::mt19937& random, std::int64_t rows) const {
    std::vector<std::int64_t> sizes{rows, 3, 5};
    sizes.resize(static_cast<std::size_t>(dims));
    at::Tensor x = at::randn(sizes).mul(3);
    x = (dtype == at::kByte ? x.abs() : x).to(dtype);
    switch (random() % 4) {
      case 0:
        return x.transpose(0, -1).contiguous().transpose(0, -1);
      case 1:
        return at::stack({x, x}, -1).select(-1, 1);
      case 2:
        return by_operations(x);
      default:
        return x;
    }
  }
  Names companions(std::mt19937& random, const at::Tensor& x) const {
    Names names{{"other", at::randn(x.sizes())}};
    for (std::size_t level = 0; level < 3; ++level) {
      const auto shape = [&](std::int64_t dims) {
        return x.sizes().slice(0, static_cast<std::size_t>(dims));
      };
      const double share[] = {0.5, 0.8, 0.5, -1, 2};
      names["mask" + std::to_string(level)] = at::rand(shape(of_mask[level])) < share[random() % 5];
      at::Tensor key = at::randint(keys == at::kByte || keys == at::kBool ? 0 : -1, 3, shape(of_key[level]));
      if (random() % 3 == 0) key = at::full(key.sizes(), static_cast<double>(random() % 2));
      names["key" + std::to_string(level)] = key.to(keys);
    }
    return names;
  }
};

}  // namespace

/// For a night: TORCHTAP_TEST_COMPOSITIONS=100000.
BOOST_AUTO_TEST_CASE(of_depth_three_have_the_bits_of_separate_reductions_also_merged_and_restored) {
  const char* const wanted = std::getenv("TORCHTAP_TEST_COMPOSITIONS");
  const int number = wanted == nullptr ? 250 : std::atoi(wanted);
  int whole = 0, refused = 0;
  for (int seed = 0; seed < number; ++seed) {
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    at::manual_seed(static_cast<std::uint64_t>(seed));
    const Composition one = compose(random, 1 + static_cast<int>(random() % 3));
    const Data data(random);
    const std::size_t parts = one.merges ? 1 + random() % 8 : 1;
    std::vector<Any> got(parts, one.whole);
    std::vector<Node> want(parts, one.parts);
    BOOST_TEST_CONTEXT("seed " << seed << ": " << one.whole.describe() << " of " << data.dtype << ", "
                               << data.dims << " dimensions, in " << parts << " parts") {
      bool failed = false;
      for (std::size_t batch = 0; batch < 8 && !failed; ++batch) {
        const at::Tensor x =
            data.sample(random, random() % 9 == 0 ? 1 : 2 + static_cast<std::int64_t>(random() % 7));
        const Names names = data.companions(random, x);
        const Context named(Context::Names(names.begin(), names.end()));
        const std::size_t part = batch * parts / 8;
        if (batch == 5) got[part] = restore(torchtap::core::save(got[part]).value());
        const auto foreseen = error_of([&] { got[part].check(x); });
        const auto error = error_of([&] { got[part].update(x); });
        failed = !error.empty();
        BOOST_TEST(foreseen == error);
        BOOST_TEST(failed != error_of([&] { want[part].update(x, names); }).empty());
        BOOST_TEST_INFO(error);
      }
      refused += failed ? 1 : 0;
      if (failed) continue;
      for (std::size_t part = 1; part < parts; ++part) {
        got[0].merge(got[part]);
        want[0].merge(want[part]);
      }
      BOOST_TEST(want[0].equals(got[0]));
      whole += want[0].equals(got[0]) ? 1 : 0;
    }
  }
  BOOST_TEST(refused < number / 10);
  BOOST_TEST(whole > number * 3 / 4);
}

/// The word that chooses first does not matter to the rows that both choose.
BOOST_AUTO_TEST_CASE(masks_around_keys_have_the_bits_of_keys_around_masks) {
  at::manual_seed(1);
  const auto moments = Series(Moments(MomentsOptions().over({0})), Max(MaxOptions().over({0})));
  for (std::size_t of_mask = 0; of_mask < 4; ++of_mask) {
    for (std::size_t of_key = 0; of_key < 4; ++of_key) {
      BOOST_TEST_CONTEXT("a mask of " << of_mask << " dimensions, keys of " << of_key) {
        Where outer = where("mask", by("key", moments));
        By inner = by("key", where("mask", moments));
        std::vector<Series<Moments, Max>> want(3, moments);
        for (int batch = 0; batch < 6; ++batch) {
          const at::Tensor x = at::randn({batch == 2 ? 0 : 6, 4, 3});
          const at::Tensor mask = at::rand(x.sizes().slice(0, of_mask)) < 0.7;
          const at::Tensor key = at::randint(-1, 3, x.sizes().slice(0, of_key), at::kLong);
          if (x.size(0) == 0 && (of_mask == 0 || of_key == 0))
            continue;  // the whole sample, which has no rows
          const Context named({{"mask", mask}, {"key", key}});
          outer.update(x);
          inner.update(x);
          const auto most = static_cast<std::int64_t>(std::max(of_mask, of_key));
          const auto wide = [&](const at::Tensor& t) {
            std::vector<std::int64_t> sizes = t.sizes().vec();
            sizes.resize(static_cast<std::size_t>(most), 1);
            return t.reshape(sizes).expand(x.sizes().slice(0, static_cast<std::size_t>(most)));
          };
          for (std::int64_t k = 0; k < 3; ++k) {
            const at::Tensor both = wide(mask) & wide(key).eq(k);
            if (both.any().item<bool>())
              want[static_cast<std::size_t>(k)].update(most == 0 ? x : x.index({both}));
          }
        }
        const auto* const grouped = outer.inner().get<By>();
        for (std::int64_t k = 0; k < 3; ++k) {
          const auto& separate = want[static_cast<std::size_t>(k)];
          if (separate.count() == 0) continue;
          BOOST_TEST((grouped->at(k).results() == separate.results()));
          BOOST_TEST((inner.at(k).get<Where>()->inner().results() == separate.results()));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(samples_without_rows_change_nothing) {
  const Sum sum(SumOptions().over({0}));
  for (const Any& each : {Any(by("key", sum)), Any(by("key", 3, sum)), Any(where("mask", sum)),
                          Any(where("mask", by("key", sum))), Any(by("key", where("mask", sum))),
                          Any(by("key", joint("other", sum)))}) {
    Any one = each;
    const at::Tensor x = at::randn({4, 2}), none = x.slice(0, 0, 0);
    const Context named({{"key", at::arange(4) % 3}, {"mask", at::arange(4).gt(1)}, {"other", x}});
    for (const bool filled : {false, true}) {
      BOOST_TEST_CONTEXT(one.describe() << (filled ? " with samples" : "")) {
        if (filled) one.update(x);
        const auto before = torchtap::core::save(one).value().bytes;
        const Context empty(
            {{"key", at::empty({0}, at::kLong)}, {"mask", at::empty({0}, at::kBool)}, {"other", none}});
        one.update(none);
        BOOST_TEST(torchtap::core::save(one).value().bytes == before);
        BOOST_TEST(one.results().empty() == !filled);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(counts_and_extrema_are_those_of_the_whole_however_it_is_divided) {
  std::mt19937 random(3);
  at::manual_seed(3);
  const Series each(Count(CountOptions().over({0})), Min(MinOptions().over({0})), Max(MaxOptions().over({0})),
                    AbsMax(AbsMaxOptions().over({0})), Histogram(HistogramOptions(8, -2, 2).over_all(true)),
                    Moments(MomentsOptions().over({0})));
  std::vector<at::Tensor> xs, keys;
  for (int i = 0; i < 24; ++i) {
    const auto rows = static_cast<std::int64_t>(random() % 20);
    xs.push_back(at::randn({rows, 5}));
    keys.push_back(at::randint(-2, 4, {rows}, at::kLong));
  }
  const auto fed = [&](std::size_t from, std::size_t to) {
    By one = by("key", 5, each);
    for (std::size_t i = from; i < to; ++i) {
      const Context named("key", keys[i]);
      one.update(xs[i]);
    }
    return one;
  };
  const By whole = fed(0, xs.size());
  const at::Tensor key = at::cat(keys), x = at::cat(xs).to(at::kDouble);
  BOOST_TEST(whole.left_out() == key.lt(0).sum().item<std::int64_t>());
  BOOST_TEST(whole.count() == key.ge(0).sum().item<std::int64_t>());
  for (std::size_t parts = 1; parts <= 8; ++parts) {
    for (int again = 0; again < 4; ++again) {
      std::vector<std::size_t> cuts{0, xs.size()};
      while (cuts.size() <= parts) cuts.push_back(random() % (xs.size() + 1));
      std::sort(cuts.begin(), cuts.end());
      By merged = by("key", 5, each);
      for (std::size_t part = 0; part < parts; ++part) merged.merge(fed(cuts[part], cuts[part + 1]));
      const auto got = merged.results(), want = whole.results();
      BOOST_TEST(got.names() == want.names());
      for (const auto& [name, tensor] : got) {
        if (name.find("moments.") == 0) {
          BOOST_TEST(close(tensor, want.at(name), 1e-12));
        } else {
          BOOST_TEST(at::equal(tensor.nan_to_num(7), want.at(name).nan_to_num(7)), name);
        }
      }
    }
  }
  const auto got = whole.results();
  for (std::int64_t k = 0; k < 4; ++k) {
    const at::Tensor rows = x.index({key == k});
    BOOST_TEST(got.at("key.count")[k].item<std::int64_t>() == rows.size(0));
    BOOST_TEST(at::equal(got.at("max.value")[k].to(at::kDouble), rows.amax(0)));
    BOOST_TEST(close(got.at("moments.variance")[k], rows.var(0), 1e-6));
  }
  BOOST_TEST(got.at("key.count")[4].item<std::int64_t>() == 0);
  BOOST_TEST(got.at("count.rows")[4].eq(0).all().item<bool>());
  for (const char* const name : {"min.value", "max.value", "moments.mean", "moments.kurtosis"})
    BOOST_TEST(got.at(name)[4].isnan().all().item<bool>(), name);
}

BOOST_AUTO_TEST_SUITE_END()
