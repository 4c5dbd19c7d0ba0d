#pragma once

#include <torch/torch.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/reductions/parse.hpp>
#include <torchtap/reductions/where.hpp>

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

/// Reductions of the rows that a mask chooses, which are added up in pages of a device.
inline const std::vector<std::string> kMaskedReductions = {"sum",
                                                           "mean",
                                                           "moments",
                                                           "min",
                                                           "max",
                                                           "abs_max",
                                                           "norm",
                                                           "norm:1",
                                                           "norm:3",
                                                           "histogram:16:-3:3",
                                                           "log_histogram",
                                                           "moments, min, max, count",
                                                           "moments, histogram:8:-1:1, log_histogram, norm"};

inline torchtap::recorders::RecorderOptions chosen(const std::string& text,
                                                   const std::vector<std::int64_t>& over) {
  return torchtap::recorders::RecorderOptions().reduction(
      torchtap::reductions::where("mask", parsed(text, over)));
}

/// The same on the CPU, in float64.
inline void feed(torchtap::reductions::Any& on_cpu, const at::Tensor& x, const at::Tensor& mask) {
  const torchtap::core::Context named("mask", mask.cpu());
  on_cpu.update(x.cpu().to(at::kDouble));
}

/// The sample with what its padding may hold: large numbers, infinities and NaN where the mask is false.
inline at::Tensor spoiled(const at::Tensor& x, const at::Tensor& mask) {
  at::Tensor padding = at::full(x.sizes(), 1e30);
  padding.view(-1).slice(0, 0, c10::nullopt, 3).fill_(std::numeric_limits<double>::infinity());
  padding.view(-1).slice(0, 1, c10::nullopt, 3).fill_(std::numeric_limits<double>::quiet_NaN());
  std::vector<std::int64_t> sizes = mask.sizes().vec();
  sizes.resize(static_cast<std::size_t>(x.dim()), 1);
  return at::where(mask.reshape(sizes), x, padding.to(x.scalar_type()));
}

/// Samples whose rows a mask chooses; the mask has the first `dims` dimensions.
struct MaskCase {
  std::string name;
  std::vector<std::int64_t> sizes;
  std::int64_t dims;
  std::vector<std::int64_t> over;
  double shift = 0;

  /// The i-th of five samples, float32, and its mask: of some rows, none, all, the second half, some.
  std::pair<at::Tensor, at::Tensor> batch(int i) const {
    const at::IntArrayRef leading(sizes.data(), static_cast<std::size_t>(dims));
    at::Tensor mask = at::rand(leading).lt(i == 1 ? 0.0 : i == 2 ? 1.0 : 0.4);
    if (i == 3 && dims > 0) {
      mask.fill_(false);
      mask.view(-1).slice(0, mask.numel() / 2).fill_(true);
    }
    at::Tensor x = spoiled(at::randn(sizes) + shift, mask);
    if (i == 4) x = x.transpose(0, -1).contiguous().transpose(0, -1);
    return {x, mask};
  }
};

inline const std::vector<MaskCase> kMaskCases = {{"tokens, by feature", {4, 150, 40}, 2, {0}},
                                                 {"tokens, far from 0", {4, 150, 40}, 2, {0}, 1e3},
                                                 {"tokens, all", {4, 150, 5}, 2, {}, 1e3},
                                                 {"tokens, all of many", {3, 700, 9}, 2, {}},
                                                 {"sequences, by feature", {6, 50, 33}, 1, {0, 1}},
                                                 {"sequences, all", {6, 50, 3}, 1, {}},
                                                 {"images, by channel", {5, 6, 9, 10}, 1, {0, 2, 3}},
                                                 {"images, one channel", {5, 1, 90, 100}, 1, {0, 2, 3}, 1e3},
                                                 {"rows", {300, 7}, 1, {0}},
                                                 {"rows of the last dimension", {300, 7}, 1, {-2}},
                                                 {"numbers", {9000}, 1, {}, 1e3},
                                                 {"numbers, as rows", {9000}, 1, {0}},
                                                 {"every element", {30, 40}, 2, {0}},
                                                 {"one mask for all", {20, 4}, 0, {0}},
                                                 {"one mask, another dimension", {20, 4}, 0, {1}}};

}  // namespace torchtap_test
