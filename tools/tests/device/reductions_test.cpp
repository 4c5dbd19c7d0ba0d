// Reductions of samples on a device compute what they compute of the same samples on the CPU, there, and
// without waiting.
#include <boost/test/data/test_case.hpp>

#include <map>
#include <set>

#include <torchtap/core/context.hpp>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "on_device.hpp"
#include "tests/only_where.hpp"
#include "tests/support.hpp"

using namespace torchtap;
using namespace torchtap_test;
namespace utf = boost::unit_test;

namespace {

const std::vector<std::string> kReductions = {"sum",
                                              "mean",
                                              "moments",
                                              "moments:2",
                                              "min",
                                              "max",
                                              "abs_max",
                                              "norm",
                                              "norm:3",
                                              "count",
                                              "first",
                                              "last",
                                              "ema:0.75",
                                              "histogram:16",
                                              "log_histogram",
                                              "log_histogram:5",
                                              "quantiles",
                                              "covariance",
                                              "gram",
                                              "top_k:3",
                                              "every(2, max)",
                                              "histogram:7:-1:2",
                                              "window(3, mean)",
                                              "mean, moments, histogram:8"};

std::map<std::string, reductions::ParseOptions> kinds_of_reductions() {
  return {{"elementwise", {}},
          {"over {0}", reductions::ParseOptions().over({0})},
          {"over all", reductions::ParseOptions().over_all(true)}};
}

std::vector<at::Tensor> samples(at::ScalarType dtype, int number = 6) {
  at::manual_seed(3);
  std::vector<at::Tensor> list;
  for (int i = 0; i < number; ++i) {
    const auto floating = c10::isComplexType(dtype) ? at::kComplexDouble : at::kDouble;
    list.push_back((at::randn({4, 3}, floating) * 2).to(dtype));
  }
  return list;
}

bool is_here(const at::Tensor& tensor) {
  return tensor.device() == device();
}

/// What a reduction knows without the samples' elements.
const std::set<std::string> kNumbers = {"rows", "elements", "levels", "indices"};

/// The results on the device are those of the CPU, and are there.
void check_same(const core::Results& got, const core::Results& want, double rtol = 2e-5) {
  BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
  for (const auto& [name, tensor] : want) {
    if (!got.contains(name)) continue;
    BOOST_TEST_CONTEXT("result " << name) {
      BOOST_TEST((is_here(got.at(name)) || kNumbers.count(name) != 0));
      BOOST_TEST(got.at(name).scalar_type() == tensor.scalar_type());
      BOOST_TEST(close(got.at(name).cpu(), tensor, rtol));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(device_reductions, *utf::precondition(has_device))

BOOST_DATA_TEST_CASE(results_are_those_of_the_cpu, utf::data::make(ways()), fused) {
  const Fused way(fused);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kByte, at::kBool,
                           at::kComplexFloat}) {
    const auto data = samples(dtype);
    for (const auto& [how, options] : kinds_of_reductions()) {
      for (const auto& text : kReductions) {
        BOOST_TEST_CONTEXT(text << ", " << how << ", " << dtype) {
          auto on_cpu = reductions::parse(text, options), here = on_cpu;
          bool refused = false;
          for (const auto& sample : data) {
            const std::string want = error_of([&] { on_cpu.update(sample); });
            const std::string got = error_of([&] { here.update(sample.to(device())); });
            BOOST_TEST(got == want);
            refused = refused || !want.empty() || !got.empty();
          }
          if (refused) continue;
          BOOST_TEST(here.count() == on_cpu.count());
          const std::string error =
              error_of([&, text = text] { check_same(here.results(), on_cpu.results()); });
          BOOST_TEST(error == "");
        }
      }
    }
  }
}

BOOST_DATA_TEST_CASE(updates_wait_for_nothing, utf::data::make(ways()), fused) {
  const Fused way(fused);
  for (const auto dtype : {at::kFloat, at::kHalf}) {
    std::vector<at::Tensor> data;
    for (const auto& sample : samples(dtype)) data.push_back(sample.to(device()));
    for (const auto& [how, options] : kinds_of_reductions()) {
      for (const auto& text : kReductions) {
        BOOST_TEST_CONTEXT(text << ", " << how << ", " << dtype) {
          auto reduction = reductions::parse(text, options);
          if (!error_of([&] { reduction.check(data[0]); }).empty()) continue;
          const NoWaiting strict;
          for (std::size_t i = 0; i < data.size(); ++i) {
            BOOST_TEST_CONTEXT("sample " << i) BOOST_TEST(error_of([&] { reduction.update(data[i]); }) == "");
          }
        }
      }
    }
  }
}

BOOST_DATA_TEST_CASE(what_is_not_finite_is_omitted_or_raised, utf::data::make(ways()), fused) {
  const Fused way(fused);
  auto data = samples(at::kFloat);
  for (auto& sample : data) sample[1][2] = std::numeric_limits<float>::quiet_NaN();
  data[2][0][0] = std::numeric_limits<float>::infinity();
  using namespace reductions;
  const auto omit = NonFinite::omit;
  const std::vector<Any> all{Sum(SumOptions().non_finite(omit)),
                             Mean(MeanOptions().over({0}).non_finite(omit)),
                             Moments(MomentsOptions().over_all(true).non_finite(omit)),
                             Max(MaxOptions().over({0}).non_finite(omit)),
                             Norm(NormOptions().over({0}).non_finite(omit)),
                             Histogram(HistogramOptions(8).over({0}))};
  for (const Any& each : all) {
    BOOST_TEST_CONTEXT(each.describe()) {
      Any on_cpu = each, here = each;
      for (const auto& sample : data) {
        on_cpu.update(sample);
        here.update(sample.to(device()));
      }
      check_same(here.results(), on_cpu.results());
    }
  }
  Mean strict(MeanOptions().non_finite(NonFinite::raise));
  strict.update(at::ones({3}, device()));
  BOOST_CHECK_EXCEPTION(strict.update(at::full({3}, INFINITY, device())), c10::Error, says({"Mean"}));
  BOOST_TEST(strict.count() == 1);
  BOOST_TEST(close(strict.results().at("value").cpu(), at::ones({3}), 0));
}

BOOST_DATA_TEST_CASE(states_of_the_cpu_and_the_device_merge, utf::data::make(ways()), fused) {
  const Fused way(fused);
  const auto data = samples(at::kFloat);
  for (const auto& [how, options] : kinds_of_reductions()) {
    for (const auto& text : kReductions) {
      BOOST_TEST_CONTEXT(text << ", " << how) {
        const auto empty = reductions::parse(text, options);
        if (!empty.commutative() || !error_of([&] { empty.check(data[0]); }).empty()) continue;
        auto whole = empty, first = empty, second = empty, first_here = empty, second_here = empty;
        for (std::size_t i = 0; i < data.size(); ++i) {
          whole.update(data[i]);
          (i < 4 ? first : second).update(data[i]);
          (i < 4 ? first_here : second_here).update(data[i].to(device()));
        }
        BOOST_TEST(error_of([&] {
                     auto both_here = first_here, moved_here = first_here, moved_off = first;
                     both_here.merge(second_here);
                     check_same(both_here.results(), whole.results());
                     moved_here.merge(second);
                     check_same(moved_here.results(), whole.results());
                     moved_off.merge(second_here);
                     for (const auto& [name, tensor] : moved_off.results()) {
                       BOOST_TEST_CONTEXT(name)
                       BOOST_TEST(close(tensor.cpu(), whole.results().at(name), 2e-5));
                     }
                   }) == "");
      }
    }
  }
}

BOOST_DATA_TEST_CASE(a_saved_state_goes_on_where_it_was, utf::data::make(ways()), fused) {
  const Fused way(fused);
  const auto data = samples(at::kFloat);
  for (const auto& text : kReductions) {
    BOOST_TEST_CONTEXT(text) {
      auto whole = reductions::parse(text, reductions::ParseOptions().over({0})), here = whole;
      for (std::size_t i = 0; i < data.size(); ++i) {
        whole.update(data[i]);
        if (i < 4) here.update(data[i].to(device()));
      }
      BOOST_TEST(error_of([&] {
                   auto restored = reductions::restore(*core::save(*core::make_sink(here)));
                   for (std::size_t i = 4; i < data.size(); ++i) restored.update(data[i].to(device()));
                   check_same(restored.results(), whole.results());
                 }) == "");
    }
  }
}

BOOST_DATA_TEST_CASE(rows_lie_in_memory_in_every_order, utf::data::make(ways()), fused) {
  const Fused way(fused);
  at::manual_seed(5);
  const at::Tensor images = at::randn({8, 37, 7, 9}), table = at::randn({300, 70}) + 1000,
                   line = at::randn({300001});
  const std::vector<std::pair<at::Tensor, std::vector<std::int64_t>>> all = {
      {images, {0, 2, 3}},
      {images, {1}},
      {images, {0, 1}},
      {images, {2, 3}},
      {images, {0, 3}},
      {images, {}},
      {images.contiguous(at::MemoryFormat::ChannelsLast), {0, 2, 3}},
      {images.slice(3, 1, 9, 2), {0}},
      {table, {0}},
      {table, {1}},
      {table.t(), {0}},
      {table, {0, 1}},
      {table.slice(1, 0, 3), {0}},
      {line, {0}},
      {line, {}},
      {at::randn({1, 70}).expand({50, 70}), {0}},
      {at::randn({}), {}},
      {at::randn({0, 4}), {0}}};
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kShort}) {
    for (const auto& [sample, over] : all) {
      for (const char* text :
           {"moments", "moments:2", "histogram:16:-3:3", "histogram:16", "log_histogram", "count"}) {
        BOOST_TEST_CONTEXT(text << " of " << dtype << " " << sample.sizes() << ", strides "
                                << sample.strides() << ", over " << at::IntArrayRef(over)) {
          const auto options =
              over.empty() ? reductions::ParseOptions() : reductions::ParseOptions().over(over);
          auto on_cpu = reductions::parse(text, options), here = on_cpu, again = on_cpu;
          for (const double scale : {1.0, 2.0, 0.5}) {
            const at::Tensor x = sample.mul(scale).to(dtype), there = x.to(device());
            on_cpu.update(x);
            here.update(there);
            again.update(there);
          }
          check_same(here.results(), on_cpu.results());
          if (!fused) continue;
          for (const auto& [name, tensor] : here.results()) {  // to the bit, in each run
            BOOST_TEST(at::equal(tensor.nan_to_num(), again.results().at(name).nan_to_num()), name);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_reservoir_keeps_rows_of_the_stream) {
  const at::Tensor rows = at::arange(4000, at::kLong).unsqueeze(1);
  reductions::Reservoir on_cpu(reductions::ReservoirOptions(50).seed(4).over({0})), here = on_cpu;
  for (const auto& part : rows.split(70)) {
    on_cpu.update(part);
    here.update(part.to(device()));
  }
  BOOST_TEST(here.count() == 4000);
  check_same(here.results(), on_cpu.results());
}

BOOST_AUTO_TEST_CASE(quantiles_of_many_elements_are_within_the_stated_error) {
  at::manual_seed(1);
  const at::Tensor values = at::randn({200000});
  reductions::Quantiles here(reductions::QuantilesOptions().at({0.01, 0.5, 0.99}).over({0}));
  for (const auto& part : values.split(3000)) here.update(part.to(device()));
  const at::Tensor got = here.results().at("quantiles").cpu().to(at::kDouble);
  const at::Tensor sorted = std::get<0>(values.sort());
  const double want[] = {0.01, 0.5, 0.99};
  for (int i = 0; i < 3; ++i) {
    const double rank = (sorted.to(at::kDouble) < got[i]).sum().item<double>() / 200000;
    BOOST_TEST(std::abs(rank - want[i]) < 0.01);
  }
}

/// By keys and masks on the device and on the CPU. Whole numbers are the same.
BOOST_DATA_TEST_CASE(rows_are_chosen_as_on_the_cpu, utf::data::make(ways()), fused) {
  const Fused way(fused);
  at::manual_seed(2);
  const std::vector<std::int64_t> rows{300}, tokens{16, 9};
  for (const char* const text :
       {"by(key, count)", "by(key:5, moments)", "where(mask, log_histogram)", "by(key, where(mask, count))",
        "where(mask, by(key, mean, histogram:8:-3:3))", "by(key, joint(other, covariance))"}) {
    for (const at::IntArrayRef sizes : {at::IntArrayRef(rows), at::IntArrayRef(tokens)}) {
      for (const bool choosers_here : {true, false}) {
        BOOST_TEST_CONTEXT(text << ", " << sizes << ", " << choosers_here) {
          auto on_cpu = reductions::parse(text, reductions::ParseOptions().over({0})), here = on_cpu;
          for (int i = 0; i < 3; ++i) {
            const at::Tensor x = at::stack({at::randn(sizes), at::randn(sizes), at::randn(sizes)}, -1),
                             other = at::randn(sizes).unsqueeze(-1);
            const at::Tensor key = at::randint(-1, 5, sizes, at::kLong), mask = at::rand(sizes).lt(0.7);
            const at::Device place = choosers_here ? device() : at::Device(at::kCPU);
            const auto update = [](reductions::Any& one, const at::Tensor& sample,
                                   core::Context::Names names) {
              const core::Context named(std::move(names));
              return error_of([&] { one.update(sample); });
            };
            BOOST_TEST(update(on_cpu, x, {{"key", key}, {"mask", mask}, {"other", other}}) == "");
            BOOST_TEST(
                update(here, x.to(device()),
                       {{"key", key.to(place)}, {"mask", mask.to(place)}, {"other", other.to(device())}}) ==
                "");
          }
          const auto got = here.results(), want = on_cpu.results();
          BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
          for (const auto& [name, tensor] : want) {
            if (!got.contains(name)) continue;
            const bool whole = at::isIntegralType(tensor.scalar_type(), true);
            BOOST_TEST_CONTEXT(name) BOOST_TEST(close(got.at(name).cpu(), tensor, whole ? 0 : 2e-5));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_sample_of_another_device_is_refused_and_changes_nothing,
                     *only_where([] { return !device().is_cpu(); }, "the CPU is the device")) {
  reductions::Mean mean;
  mean.update(at::ones({3}, device()));
  BOOST_CHECK_EXCEPTION(mean.update(at::ones({3})), c10::Error, says({"Mean", "cpu", "move"}));
  BOOST_TEST(mean.count() == 1);
  for (const auto& text : kReductions) {
    BOOST_TEST_CONTEXT(text) {
      auto reduction = reductions::parse(text, reductions::ParseOptions().over({0}));
      for (int i = 0; i < 4; ++i) reduction.update(at::ones({4, 3}));
      BOOST_CHECK_EXCEPTION(reduction.update(at::ones({4, 3}, device())), c10::Error, says({"cpu", "move"}));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
