// Recorders add samples of a device up there, and say what they say of the same samples on the CPU.
#include <map>

#include <torchtap/reductions/reductions.hpp>
#include <torchtap/torchtap.hpp>

#include "on_pages.hpp"
#include "tests/support.hpp"

using namespace torchtap;
using namespace torchtap_test;
namespace nn = torch::nn;

namespace {

const std::vector<std::string> kReductions = {"sum",
                                              "mean",
                                              "moments",
                                              "moments:2",
                                              "min",
                                              "max",
                                              "abs_max",
                                              "norm",
                                              "norm:inf",
                                              "count",
                                              "ema:0.9",
                                              "histogram:16:-3:3",
                                              "log_histogram",
                                              "log_histogram:5",
                                              "moments, min, max, count",
                                              "moments, histogram:8:-1:1, log_histogram, ema:0.5, norm",
                                              "histogram:8:-1:1, histogram:9:-2:2, ema:0.5, ema:0.75"};

struct Case {
  std::string name;
  std::vector<at::Tensor> samples;
  std::vector<std::int64_t> over;  // none: all
};

std::vector<Case> cases() {
  at::manual_seed(2);
  std::vector<Case> all;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> over, const auto& make) {
    Case one{name, {}, std::move(over)};
    for (int i = 0; i < 3; ++i) one.samples.push_back(make(i));
    all.push_back(std::move(one));
  };
  add("one token", {0, 1}, [](int) { return at::randn({1, 1, 48}); });
  add("tokens", {0, 1}, [](int i) { return at::randn({2, 300 + i, 40}); });
  add("all of many", {}, [](int i) { return at::randn({70000 + i}); });
  add("all of one number", {}, [](int i) { return at::full({1}, i + 0.5); });
  add("all, far from 0", {}, [](int) { return at::randn({40, 300}) + 1e4; });
  add("rows, far from 0", {0}, [](int) { return at::randn({900, 33}) * 0.01 + 1e3; });
  add("by channel", {0, 2, 3}, [](int i) { return at::randn({3 + i, 5, 8, 16}); });
  add("by channel, odd", {0, 2, 3}, [](int) { return at::randn({3, 5, 7, 7}); });
  add("by channel, long", {0, 2, 3}, [](int) { return at::randn({2, 3, 80, 112}); });
  add("channels last", {0, 2, 3}, [](int) {
    return at::randn({2, 40, 9, 9}).contiguous(at::MemoryFormat::ChannelsLast);
  });
  add("transposed", {0}, [](int) { return at::randn({6, 50}).t(); });
  add("a slice", {0}, [](int) { return at::randn({50, 40}).slice(1, 3, 30, 2); });
  add("unaligned", {}, [](int) { return at::randn({5001}).slice(0, 1); });
  add("the last dimension", {-1}, [](int) { return at::randn({7, 300}); });
  add("all equal", {}, [](int) { return at::full({30, 7}, 0.1); });
  add("all equal, many", {}, [](int) { return at::full({40000}, 1.0 / 3); });
  add("not finite", {0}, [](int i) {
    at::Tensor x = at::randn({50, 6});
    x[3][0] = std::numeric_limits<double>::quiet_NaN();
    x[4][1] = INFINITY;
    x[5][2] = -INFINITY;
    if (i == 1) x.select(1, 3).fill_(std::numeric_limits<double>::quiet_NaN());
    x[6][4] = 0;
    return x;
  });
  return all;
}

reductions::Any parsed(const std::string& text, const std::vector<std::int64_t>& over) {
  auto options = reductions::ParseOptions();
  if (over.empty()) {
    options.over_all(true);
  } else {
    options.over(over);
  }
  return reductions::parse(text, options);
}

recorders::RecorderOptions with(const std::string& text, const std::vector<std::int64_t>& over) {
  return recorders::RecorderOptions().reduction(parsed(text, over));
}

void check_same(const core::Results& got, const core::Results& want, double rtol) {
  BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
  for (const auto& [name, tensor] : want) {
    if (!got.contains(name)) continue;
    BOOST_TEST_CONTEXT("result " << name) {
      BOOST_TEST(got.at(name).device() == fake::device());
      BOOST_TEST(got.at(name).scalar_type() == tensor.scalar_type());
      const bool exact = !tensor.is_floating_point() || name.find("min.") == 0 || name.find("max.") == 0;
      if (exact) {
        BOOST_TEST(close(got.at(name).cpu(), tensor, 0, 0));
      } else {
        BOOST_TEST(close(got.at(name).cpu(), tensor, rtol, 1e-9));
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_pages)

BOOST_AUTO_TEST_CASE(results_are_those_of_the_cpu) {
  const OnPages pages;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const Case& one : cases()) {
      for (const auto& text : kReductions) {
        BOOST_TEST_CONTEXT(text << ", " << one.name << ", " << dtype) {
          nn::Sequential model{Same()};
          recorders::ForwardOutput recorder(with(text, one.over));
          recorder.attach(model, selectors::names("0"));
          auto on_cpu = parsed(text, one.over);
          const std::int64_t before = fake::launches();
          for (const auto& sample : one.samples) {
            const at::Tensor x = sample.to(dtype);
            at::Tensor there = fake::on_device(at::empty_strided(x.sizes(), x.strides(), x.options()));
            there.copy_(x);
            model->forward(there);
            on_cpu.update(x.to(at::kDouble));  // the CPU's kernels sum groups of small numbers in float32
          }
          BOOST_TEST(fake::launches() > before);
          BOOST_TEST(recorder[0].samples() == 3);
          auto want = on_cpu.results();
          core::Results as_here;
          for (const auto& [name, tensor] : recorder[0].results()) {
            if (want.contains(name)) as_here.set(name, want.at(name).to(tensor.scalar_type()));
          }
          check_same(recorder[0].results(), as_here, dtype == at::kDouble ? 1e-10 : 1e-6);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
