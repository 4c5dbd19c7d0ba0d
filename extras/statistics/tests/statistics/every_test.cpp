// What holds for every reduction: samples without rows, samples that no reduction can take, inference mode.
#include <ATen/core/Formatting.h>
#include <c10/core/InferenceMode.h>

#include <memory>
#include <type_traits>

#include <torchtap/core/context.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

using namespace torchtap::reductions;
using torchtap::core::Context;
using torchtap::core::Sink;

BOOST_AUTO_TEST_SUITE(every_reduction)

namespace {

/// The catalogue, and what applies its reductions to parts of a stream or to two tensors.
std::vector<std::string> all_texts() {
  std::vector<std::string> texts;
  for (const auto& one : catalogue()) {
    std::string text = one.usage.substr(0, one.usage.find_first_of(":[("));
    if (text == "histogram") text = "histogram:8";
    texts.push_back(text);
  }
  for (const char* const more :
       {"histogram:8:-2:2", "moments,count", "every(1, sum)", "window(2, mean)", "by(keys, moments)",
        "where(mask, max)", "joint(other, covariance)", "cka(other)", "cross_covariance(other)"})
    texts.emplace_back(more);
  return texts;
}

std::unique_ptr<Sink> sink_of(const std::string& text, bool over_all = false) {
  ParseOptions options;
  if (over_all) {
    options.over_all();
  } else if (text != "blocks") {  // which counts all elements
    options.over({0});
  }
  return torchtap::core::make_sink(parse(text, options));
}

void update(Sink& sink, const at::Tensor& sample) {
  const std::int64_t rows = sample.size(0);
  const Context named({{"keys", at::arange(rows).remainder(2)},
                       {"mask", at::ones({rows}, at::kBool)},
                       {"other", at::ones({rows, 2}).cumsum(0)}});
  sink.update(sample);
}

std::unique_ptr<Sink> restored(const Sink& sink) {
  return torchtap::core::make_sink(restore(torchtap::core::save(sink).value()));
}

void check_alike(const Sink& got, const Sink& want) {
  BOOST_TEST(got.count() == want.count());
  const auto a = got.results(), b = want.results();
  BOOST_TEST(a.names() == b.names(), boost::test_tools::per_element());
  for (const auto& [name, tensor] : b) BOOST_TEST_CONTEXT(name) BOOST_TEST(close(a.at(name), tensor, 1e-6));
}

}  // namespace

BOOST_AUTO_TEST_CASE(samples_without_rows_are_a_state_like_any_other) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({6, 3});
  for (const std::string& text : all_texts()) {
    for (const bool over_all : {false, true}) {
      BOOST_TEST_CONTEXT(text << (over_all ? ", over all" : "")) {
        const auto none = sink_of(text, over_all), want = sink_of(text, over_all);
        update(*none, at::ones({0, 3}));
        update(*none, at::ones({0, 3}));
        update(*want, x);
        BOOST_CHECK_NO_THROW((void)none->results());
        const auto saved = restored(*none);
        check_alike(*saved, *none);
        const auto before = sink_of(text, over_all);  // merged into, and merged
        update(*before, x);
        before->merge(*saved);
        saved->merge(*want);
        if (text != "blocks" && text.rfind("window", 0) != 0) {  // for which each sample counts
          check_alike(*before, *want);
          check_alike(*saved, *want);
        }
        check_alike(*restored(*saved), *saved);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(no_features_are_a_shape_like_any_other) {
  for (const char* const text : {"joint(other, covariance)", "cka(other)", "cross_covariance(other)"}) {
    BOOST_TEST_CONTEXT(text) {
      const auto sink = sink_of(text);
      update(*sink, at::ones({4, 0}));
      BOOST_TEST(restored(*sink)->count() == 4);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_has_no_elements_in_strides_is_refused_and_changes_nothing) {
  const at::Tensor x = at::arange(12, at::kFloat).view({4, 3});
  const at::Tensor wrapper = at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet({c10::DispatchKey::CPU, c10::DispatchKey::FuncTorchBatched}),
      caffe2::TypeMeta::Make<float>(), c10::Device(c10::kCPU));
  const std::vector<std::pair<const char*, at::Tensor>> others{
      {"nested", at::_nested_tensor_from_mask(at::ones({2, 3, 4}), at::ones({2, 3}, at::kBool))},
      {"sparse", x.to_sparse()},
      {"wrapper", wrapper}};
  for (const std::string& text : all_texts()) {
    for (const auto& [kind, other] : others) {
      for (const bool first : {true, false}) {
        BOOST_TEST_CONTEXT(text << ", " << kind << (first ? ", first" : "")) {
          const auto sink = sink_of(text), want = sink_of(text);
          if (!first) {
            update(*sink, x);
            update(*want, x);
          }
          const Context named({{"keys", at::arange(4)}, {"mask", at::ones({4}, at::kBool)}, {"other", x}});
          const at::Tensor& sample = other;
          BOOST_CHECK_EXCEPTION(sink->update(sample), c10::TypeError, [](const c10::Error& error) {
            return dynamic_cast<const torchtap::core::Unfit*>(&error) != nullptr;
          });
          check_alike(*sink, *want);
        }
      }
    }
  }
}

/// Tensors that are made in inference mode cannot be changed in place outside of it.
BOOST_AUTO_TEST_CASE(inference_mode_may_begin_and_end_between_any_two_calls) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({64, 40}), y = at::randn({64, 40});
  for (const std::string& text : all_texts()) {
    for (const bool over_all : {false, true}) {
      BOOST_TEST_CONTEXT(text << (over_all ? ", over all" : "")) {
        const auto want = sink_of(text, over_all), other = sink_of(text, over_all);
        update(*want, x);
        update(*want, y);
        update(*other, y);
        std::unique_ptr<Sink> begun = sink_of(text, over_all), loaded, copied,
                              merged = sink_of(text, over_all);
        {
          const c10::InferenceMode inference;
          update(*begun, x);
          loaded = restored(*begun);
          copied = begun->clone();
          merged->merge(*begun);
        }
        for (Sink* const sink : {begun.get(), loaded.get(), copied.get(), merged.get()}) {
          const auto joined = sink->clone();
          joined->merge(*other);
          update(*sink, y);
          check_alike(*sink, *want);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(results_of_one_name_are_an_error) {
  const at::Tensor x = at::ones({4, 3});
  const Context named({{"k", at::ones({4}, at::kBool)},
                       {"k.left_out", at::arange(4)},
                       {"k.start", at::arange(4)},
                       {"l", at::ones({4, 2})}});
  const auto mean = [] { return Mean(MeanOptions().over({0})); };
  Where where("k", by("k.left_out", mean()));
  BOOST_CHECK_EXCEPTION(where.update(x), c10::ValueError,
                        torchtap_test::says({"Where::update", "k.left_out"}));
  BOOST_TEST(where.count() == 0);
  BOOST_TEST(where.results().empty());
}

template <class R>
R after(R reduction, const at::Tensor& sample) {
  reduction.update(sample);
  return reduction;
}

BOOST_AUTO_TEST_CASE(options_mean_what_they_say) {
  const at::Tensor x = at::arange(6, at::kFloat);
  BOOST_TEST(after(EMA(EMAOptions().over_all()), x).value().dim() == 0);
  BOOST_TEST(after(TopK(TopKOptions(2).over_all()), x).values().numel() == 2);
  static_assert(!std::is_convertible_v<bool, EMAOptions> && !std::is_constructible_v<TopKOptions, bool> &&
                !std::is_constructible_v<ReservoirOptions, bool> && std::is_convertible_v<int, EMAOptions> &&
                std::is_convertible_v<int, TopKOptions>);
  const auto fixed = after(Histogram(HistogramOptions(4).low(0).high(4).over_all()), x);
  BOOST_TEST(fixed.edges().equal(at::arange(5, at::kDouble)));
  BOOST_TEST(fixed.overflow().item<std::int64_t>() == 1);
  BOOST_CHECK_THROW(Histogram(HistogramOptions(4).low(0)), c10::ValueError);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(generators)

namespace {

Reservoir rows_of(const at::Tensor& x) {
  Reservoir reservoir(ReservoirOptions(6).over({0}));
  reservoir.update(x);
  return reservoir;
}

/// How often each pair of rows is chosen: the mean of (observed - expected)² / expected, near 1 by chance.
struct Pairs {
  static constexpr std::int64_t rows = 30;
  at::Tensor chosen = at::zeros({rows, rows}, at::kDouble);
  int runs = 0;

  void add(const Reservoir& reservoir) {
    at::Tensor one = at::zeros({rows}, at::kDouble);
    one.index_fill_(0, reservoir.indices(), 1);
    chosen += at::outer(one, one);
    ++runs;
  }
  double of_pairs() const {
    const double expected = runs * 6. * 5 / (rows * (rows - 1));
    const at::Tensor off = at::ones({rows, rows}, at::kBool).triu(1);
    return chosen.masked_select(off).sub(expected).square().div(expected).mean().item<double>();
  }
  double of_rows() const {
    const double expected = runs * 6. / rows;
    return chosen.diagonal().sub(expected).square().div(expected * (1 - 6. / rows)).mean().item<double>();
  }
  void check() const {
    BOOST_TEST(of_rows() < 2.0);
    BOOST_TEST(of_pairs() < 1.25);
  }
};

}  // namespace

/// All have the default seed. Taking over a state takes its random numbers along; parts with other rows have
/// other numbers.
BOOST_AUTO_TEST_CASE(reservoirs_of_one_seed_are_independent) {
  at::manual_seed(7);
  Pairs resumed, parts, four;
  for (int run = 0; run < 3000; ++run) {
    const at::Tensor x = at::randn({Pairs::rows, 1});
    const Reservoir before = rows_of(x.narrow(0, 0, 10));
    Reservoir after(ReservoirOptions(6).over({0}));
    after.merge(before);
    Reservoir goes_on = before;
    after.update(x.narrow(0, 10, 20));
    goes_on.update(x.narrow(0, 10, 20));
    BOOST_TEST_REQUIRE(after.indices().equal(goes_on.indices()));
    resumed.add(after);
    Reservoir two = rows_of(x.narrow(0, 0, 15));
    two.merge(rows_of(x.narrow(0, 15, 15)));
    parts.add(two);
    Reservoir left = rows_of(x.narrow(0, 0, 6)), right = rows_of(x.narrow(0, 12, 6));
    left.merge(rows_of(x.narrow(0, 6, 6)));
    right.merge(rows_of(x.narrow(0, 18, 12)));
    left.merge(right);
    four.add(left);
  }
  BOOST_TEST_CONTEXT("resumed") resumed.check();
  BOOST_TEST_CONTEXT("two parts") parts.check();
  BOOST_TEST_CONTEXT("four parts") four.check();
}

BOOST_AUTO_TEST_CASE(quantiles_that_are_resumed_often_stay_within_their_error) {
  const std::vector<double> levels{0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95};
  at::manual_seed(8);
  int outside = 0, all = 0;
  for (int stream = 0; stream < 6; ++stream) {
    const at::Tensor x = at::rand({200 * 150, 1});
    Quantiles sketch(QuantilesOptions().k(64).over({0}));
    for (const at::Tensor& part : x.split(150)) {
      Quantiles next(QuantilesOptions().k(64).over({0}));
      next.merge(sketch);
      next.update(part);
      sketch = next;
    }
    const at::Tensor sorted = std::get<0>(x.view(-1).sort()), found = sketch.quantiles(levels).view(-1);
    for (std::size_t i = 0; i < levels.size(); ++i, ++all) {
      const double rank = sorted.lt(found[static_cast<std::int64_t>(i)]).sum().item<double>() /
                          static_cast<double>(x.numel());
      outside += std::abs(rank - levels[i]) > sketch.rank_error() ? 1 : 0;
    }
  }
  BOOST_TEST(outside <= 2, outside << " of " << all);  // one of a hundred may be
}

BOOST_AUTO_TEST_SUITE_END()
