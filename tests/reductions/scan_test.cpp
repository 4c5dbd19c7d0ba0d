// Tests the single vectorised pass against ATen's operations. A negative view has the values of a plain
// tensor but is not one, so it takes the path of ATen's operations.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <reductions/support.hpp>
#include <support.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <torchtap/reductions/fast/kernels.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/only_where.hpp"

BOOST_AUTO_TEST_SUITE(scan)

using namespace torchtap;
using namespace torchtap::reductions;
namespace bdata = boost::unit_test::data;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Rows {
  std::vector<std::int64_t> over;  // all if empty
  template <class Options>
  Options operator()(Options options) const {
    if (over.empty()) {
      options.over_all(true);
    } else {
      options.over(over);
    }
    return options;
  }
};

auto make_series(const Rows& rows, NonFinite policy) {
  const auto fold = [&](auto options) { return rows(options).non_finite(policy); };
  return Series(Moments(fold(MomentsOptions())), Min(fold(MinOptions())), Max(fold(MaxOptions())),
                AbsMax(fold(AbsMaxOptions())), Sum(fold(SumOptions())), Mean(fold(MeanOptions())),
                Norm(fold(NormOptions())), Norm(fold(NormOptions().p(kInfinity))),
                Norm(fold(NormOptions().p(3))),
#if __has_include(<torchtap/reductions/statistics.hpp>)  // bins are counted in the same pass
                Histogram(rows(HistogramOptions(10, -1.5, 2))), Histogram(rows(HistogramOptions(16))),
#endif
                Count(rows(CountOptions())));
}

bool is_exact(const std::string& name) {
  for (const char* exact : {"min.", "max.", "abs_max.", "count.", "histogram", "omitted"}) {
    if (name.find(exact) != std::string::npos) return true;
  }
  return false;
}

/// Checks that both paths give the same results in two updates with different data.
void compare(const at::Tensor& x, const Rows& rows, NonFinite policy, double rtol) {
  auto fast = make_series(rows, policy);
  auto slow = make_series(rows, policy);
  // The second update merges into the state of the first.
  for (const double factor : {1.0, -0.5}) {
    const at::Tensor sample = factor == 1.0 ? x : x.mul(factor);
    fast.update(sample);
    slow.update(by_operations(sample));
  }
  const core::Results got = fast.results(), want = slow.results();
  for (const auto& [name, tensor] : want) {
    BOOST_TEST_CONTEXT(name << ", " << x.toString() << x.sizes() << " strides " << x.strides() << ", over "
                            << at::IntArrayRef(rows.over)) {
      const at::Tensor& mine = got.at(name);
      BOOST_TEST(mine.scalar_type() == tensor.scalar_type());
      if (is_exact(name)) {
        BOOST_TEST(close(mine, tensor, 0.0));
      } else {
        // Compares sums that cancel out on the scale of their summands.
        const bool cancels = name.find("mean") != std::string::npos ||
                             name.find("skewness") != std::string::npos ||
                             name.find("sum") != std::string::npos;
        const double scale = !cancels                                ? 0.0
                             : name.find("sum") == std::string::npos ? 1.0
                                                                     : static_cast<double>(x.numel());
        const bool narrow = tensor.scalar_type() == at::kFloat;  // sums and means in float32
        BOOST_TEST(close(mine, tensor, narrow ? 1e-5 : rtol, (narrow ? 1e-6 : rtol) * scale));
      }
    }
  }
}

const at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

struct Shaped {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> over;
};

std::ostream& operator<<(std::ostream& out, const Shaped& one) {
  return out << at::IntArrayRef(one.sizes) << " over " << at::IntArrayRef(one.over);
}

const std::vector<Shaped> kShapes{
    {{0}, {}},
    {{1}, {}},
    {{7}, {}},
    {{63}, {0}},
    {{2047}, {}},
    {{2049}, {}},
    {{8193}, {}},
    {{100003}, {}},
    {{3, 5, 7}, {}},
    {{4, 3, 50, 50}, {0, 2, 3}},  // runs
    {{5, 6, 7, 7}, {0, 2, 3}},    // runs of an odd length
    {{9, 4, 2, 3}, {0, 2, 3}},    // short runs
    {{40, 300}, {0}},             // columns, more than fit at a time
    {{3000, 3}, {0}},             // few columns
    {{2500, 1}, {0}},
    {{1, 100}, {0}},  // a single row
    {{30, 40}, {1}},
    {{30, 2}, {-1}},
    {{6, 20, 5}, {1}},             // columns, several times
    {{6, 20, 5, 70}, {0, 2}},      // both
    {{3, 2, 3, 2, 3}, {0, 2, 4}},  // not expressible as a layout of the scan
    {{2, 70000}, {1}},
    {{2, 3, 140000}, {0, 2}},
    {{4, 0, 3}, {0, 1}},
};

}  // namespace

BOOST_DATA_TEST_CASE(one_pass_finds_what_operations_find,
                     bdata::make(kShapes) ^ bdata::xrange(kShapes.size()), shaped, seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  for (const auto type : kTypes) {
    const at::Tensor floats = at::randn(shaped.sizes).mul_(0.7), x = floats.to(type);
    const double rtol = type == at::kDouble ? 1e-10 : 1e-6;
    compare(x, {shaped.over}, NonFinite::propagate, rtol);
    compare(floats.relu().to(type), {shaped.over}, NonFinite::omit, rtol);
  }
}

BOOST_DATA_TEST_CASE(nan_and_infinities_do_what_the_policy_says,
                     bdata::make(kShapes) ^ bdata::xrange(kShapes.size()), shaped, seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  for (const auto type : kTypes) {
    for (const std::vector<double>& bad : {std::vector<double>{kNaN},
                                           {kInfinity},
                                           {-kInfinity},
                                           {kInfinity, -kInfinity},
                                           {kNaN, kInfinity, -kInfinity}}) {
      at::Tensor x = at::randn(shaped.sizes).to(type);
      if (x.numel() == 0) continue;
      const at::Tensor places = at::randint(x.numel(), {static_cast<std::int64_t>(bad.size())}, at::kLong);
      x.view(-1).index_put_({places}, at::tensor(bad).to(type));
      compare(x, {shaped.over}, NonFinite::propagate, type == at::kDouble ? 1e-10 : 1e-6);
      compare(x, {shaped.over}, NonFinite::omit, type == at::kDouble ? 1e-10 : 1e-6);
      auto series = make_series({shaped.over}, NonFinite::raise);
      BOOST_CHECK_EXCEPTION(series.update(x), c10::ValueError, torchtap_test::says({"finite numbers"}));
      BOOST_TEST(series.count() == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(any_memory_will_do) {
  at::manual_seed(0);
  for (const auto type : kTypes) {
    const at::Tensor all = at::randn({10, 12, 20, 30}).to(type);
    const double rtol = type == at::kDouble ? 1e-10 : 1e-6;
    const std::vector<at::Tensor> samples{
        all.contiguous(at::MemoryFormat::ChannelsLast),
        all.permute({2, 0, 3, 1}),
        all.slice(3, 3, 24),
        all.slice(2, 1, 19, 2),
        all.narrow(0, 3, 5),
        all.select(1, 4).unsqueeze(1),
        all.narrow(1, 0, 1).expand({10, 12, 20, 30}),
        // Starts that are not aligned to a vector.
        all.view(-1).narrow(0, 1, 9 * 12 * 20 * 30).view({9, 12, 20, 30}),
        all.view(-1).narrow(0, 3, 9 * 12 * 20 * 30).view({9, 12, 20, 30}),
    };
    for (const auto& sample : samples) {
      for (const Rows& rows : {Rows{{}}, Rows{{0, 2, 3}}, Rows{{0}}, Rows{{1, 3}}, Rows{{0, 1, 2}}})
        compare(sample, rows, NonFinite::propagate, rtol);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_sample_is_read_as_far_as_it_goes_and_not_further) {
  // The surrounding values would show if they were read.
  for (const auto type : kTypes) {
    for (const std::int64_t n : {1, 2, 15, 16, 17, 31, 33, 64, 100, 1000, 5000}) {
      at::Tensor memory = at::full({n + 64}, kNaN, type);
      memory.narrow(0, 32, n).fill_(1.0);
      const auto series = [&] {
        auto one = make_series({{}}, NonFinite::propagate);
        one.update(memory.narrow(0, 32, n));
        return one.results();
      }();
      BOOST_TEST(series.at("moments.mean").item<double>() == 1.0);
      BOOST_TEST(series.at("moments.variance").equal(at::full({}, n == 1 ? kNaN : 0.0, at::kDouble)) ==
                 (n != 1));
      BOOST_TEST(series.at("sum.value").item<double>() == static_cast<double>(n));
      BOOST_TEST(series.at("count.nan").item<std::int64_t>() == 0);
      BOOST_TEST(series.at("count.elements").item<std::int64_t>() == n);
      if (series.contains("histogram.nan")) BOOST_TEST(series.at("histogram.nan").item<std::int64_t>() == 0);
    }
  }
}

// Compares with two passes in float64. An offset, tiny and huge numbers, and outliers spoil sums of powers.
BOOST_AUTO_TEST_CASE(numbers_are_those_of_two_passes_in_float64) {
  at::manual_seed(0);
  const at::Tensor normal = at::randn({1000000}, at::kDouble);
  at::Tensor spikes = at::zeros({1000000}, at::kDouble);
  spikes.slice(0, 0, 1000000, 1001).fill_(5.0);
  const std::vector<std::pair<const char*, at::Tensor>> streams{
      {"normal", normal},
      {"offset 1e4", normal + 1e4},
      {"offset -1e4, small spread", normal * 0.25 - 1e4},
      {"tiny", normal * 1e-30},
      {"gradients", normal * 1e-9},
      {"huge", normal * 1e30},
      {"sorted", std::get<0>(normal.sort())},
      {"exponential", normal.abs().log().neg()},
      {"heavy tails", normal / at::randn({1000000}, at::kDouble).abs().clamp_min(1e-2)},
      {"relu", normal.relu()},
      {"spikes", spikes},
      {"drift", normal + at::arange(1000000, at::kDouble) * 1e-3},
  };
  for (const auto& [name, stream] : streams) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      const at::Tensor sample = stream.to(type);
      const at::Tensor x = sample.to(at::kDouble);
      Moments moments(MomentsOptions().over_all(true).unbiased(false));
      for (const auto& part : sample.split(300000)) moments.update(part);
      const at::Tensor mean = x.mean(), d = x - mean, m2 = d.square().mean();
      BOOST_TEST_CONTEXT(name << ' ' << sample.toString()) {
        BOOST_TEST(std::abs(moments.mean().item<double>() - mean.item<double>()) <=
                   1e-6 * std::max(std::abs(mean.item<double>()), 1e-2 * m2.sqrt().item<double>()));
        BOOST_TEST(close(moments.variance(), m2, 1e-6));
        const at::Tensor skewness = d.pow(3).mean() / m2.pow(1.5),
                         kurtosis = d.pow(4).mean() / m2.square() - 3;
        BOOST_TEST(std::abs(moments.skewness().item<double>() - skewness.item<double>()) <=
                   1e-6 * std::max(1.0, std::abs(skewness.item<double>())));
        BOOST_TEST(std::abs(moments.kurtosis().item<double>() - kurtosis.item<double>()) <=
                   1e-6 * std::max(1.0, std::abs(kurtosis.item<double>())));
      }
    }
  }
}

#ifndef __SANITIZE_THREAD__  // to which OpenMP's barriers are invisible
BOOST_AUTO_TEST_CASE(the_number_of_threads_changes_nothing,
                     *torchtap_test::only_where([] { return reductions::detail::kernels() != nullptr; },
                                                "ATen's sums have their own precision")) {
  at::manual_seed(0);
  const int threads = at::get_num_threads();
  const at::Tensor x = at::randn({16, 24, 60, 61});
  const auto of = [&](int count, const Rows& rows) {
    at::set_num_threads(count);
    auto series = make_series(rows, NonFinite::propagate);
    series.update(x);
    return series.results();
  };
  for (const Rows& rows : {Rows{{}}, Rows{{0, 2, 3}}, Rows{{0, 1, 2}}, Rows{{0}}}) {
    const core::Results one = of(1, rows);
    for (const int count : {2, 3, 8}) {
      const core::Results many = of(count, rows);
      for (const auto& [name, tensor] : one) {
        // ATen computes the sum of cubes, not the scan.
        if (name.find("norm_3") == std::string::npos)
          BOOST_TEST(many.at(name).equal(tensor), name << ' ' << count);
      }
    }
  }
  at::set_num_threads(threads);
}
#endif

BOOST_AUTO_TEST_CASE(elementwise_moments_are_those_of_operations) {
  at::manual_seed(0);
  for (const auto type : kTypes) {
    for (const std::int64_t n : {1, 3, 8, 17, 1000, 70001}) {
      Moments fast, slow;
      for (int i = 0; i < 7; ++i) {
        at::Tensor x = (at::randn({n}) + (i == 3 ? 1000 : 0)).to(type);
        if (i == 5 && n > 3) x[2] = kInfinity;
        fast.update(x);
        slow.update(by_operations(x));
      }
      for (const auto& [name, tensor] : slow.results())
        BOOST_TEST(close(fast.results().at(name), tensor, 1e-9, 1e-9), name << ' ' << n);
    }
  }
}

BOOST_AUTO_TEST_CASE(elementwise_moments_do_not_depend_on_the_order_in_memory) {
  at::manual_seed(0);
  const auto channels_last = [](const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); };
  const auto transposed = [](const at::Tensor& x) { return x.transpose(0, 3).contiguous().transpose(0, 3); };
  const auto sliced = [](const at::Tensor& x) { return at::cat({x, x}, 3).slice(3, 0, x.size(3)); };
  for (const auto type : kTypes) {
    for (const std::int64_t order : {2, 4}) {
      // Small and large samples; one in each of the orders.
      for (const std::vector<std::int64_t>& sizes :
           {std::vector<std::int64_t>{2, 3, 4, 5}, std::vector<std::int64_t>{4, 32, 20, 30}}) {
        Moments contiguous{MomentsOptions().order(order)}, mixed{MomentsOptions().order(order)};
        for (int i = 0; i < 2; ++i) {
          for (const std::function<at::Tensor(const at::Tensor&)>& reorder :
               {std::function<at::Tensor(const at::Tensor&)>(channels_last), {transposed}, {sliced}}) {
            const at::Tensor x = at::randn(sizes).to(type), other = reorder(x);
            BOOST_TEST_REQUIRE(!other.is_contiguous());
            contiguous.update(x);
            mixed.update(other);
          }
        }
        for (const auto& [name, tensor] : contiguous.results())
          BOOST_TEST(mixed.results().at(name).equal(tensor), name << ' ' << type << ' ' << order);
      }
    }
  }
}

// Their states lie in memory as the samples do.
BOOST_AUTO_TEST_CASE(moments_of_channels_last_samples_are_copied_saved_and_merged_as_others) {
  for (const std::int64_t order : {2, 4}) {
    const auto results = [&](at::MemoryFormat format) {
      at::manual_seed(0);
      const auto sample = [&] { return at::randn({4, 32, 20, 30}).contiguous(format); };
      Moments first{MomentsOptions().order(order)}, second{MomentsOptions().order(order)};
      for (int i = 0; i < 3; ++i) {
        first.update(sample());
        second.update(sample());
      }
      Moments copy = second;
      copy.update(sample());
      const auto saved = core::make_sink(reloaded(second));
      saved->update(sample());
      saved->merge(*core::make_sink(first));
      first.merge(copy);
      first.update(sample());
      first.update(at::randn({4, 32, 20, 30}));
      return std::vector<core::Results>{first.results(), second.results(), copy.results(), saved->results()};
    };
    const auto expected = results(at::MemoryFormat::Contiguous),
               found = results(at::MemoryFormat::ChannelsLast);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (const auto& [name, tensor] : expected[i]) {
        BOOST_TEST(found[i].at(name).equal(tensor), name << ' ' << order << ' ' << i);
        BOOST_TEST(found[i].at(name).is_contiguous(), name << ' ' << order << ' ' << i);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
