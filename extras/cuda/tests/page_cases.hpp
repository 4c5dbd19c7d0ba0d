#pragma once

#include <torch/torch.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/recorders/options.hpp>
#include <torchtap/reductions/parse.hpp>

/// What devices add up, for the fake devices of tests and for one that is there.
namespace torchtap_test {

/// Reductions that are added up in pages of a device.
inline const std::vector<std::string> kPageReductions = {
    "sum",
    "mean",
    "moments",
    "moments:2",
    "min",
    "max",
    "abs_max",
    "norm",
    "norm:inf",
    "norm:1",
    "norm:3",
    "count",
    "ema:0.9",
    "histogram:16:-3:3",
    "log_histogram",
    "log_histogram:5",
    "moments, min, max, count",
    "moments, histogram:8:-1:1, log_histogram, ema:0.5, norm",
    "histogram:8:-1:1, histogram:9:-2:2, ema:0.5, ema:0.75"};

struct PageCase {
  std::string name;
  std::vector<at::Tensor> samples;
  std::vector<std::int64_t> over;  ///< none: all
};

/// Three samples each, float32, in all ways in which samples lie in memory and rows are folded.
inline std::vector<PageCase> page_cases() {
  at::manual_seed(2);
  std::vector<PageCase> all;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> over, const auto& make) {
    PageCase one{name, {}, std::move(over)};
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

inline torchtap::reductions::Any parsed(const std::string& text, const std::vector<std::int64_t>& over) {
  auto options = torchtap::reductions::ParseOptions();
  if (over.empty()) {
    options.over_all(true);
  } else {
    options.over(over);
  }
  return torchtap::reductions::parse(text, options);
}

inline torchtap::recorders::RecorderOptions reducing(const std::string& text,
                                                     const std::vector<std::int64_t>& over = {0}) {
  return torchtap::recorders::RecorderOptions().reduction(parsed(text, over));
}

}  // namespace torchtap_test
