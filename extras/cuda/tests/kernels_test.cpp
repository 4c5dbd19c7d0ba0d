// The kernels of torchtap::cuda, run on the CPU, compute what plain LibTorch does.
#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <limits>

#include <torchtap/cuda/fused_kernels.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "on_host.hpp"
#include "tests/only_where.hpp"
#include "tests/support.hpp"

namespace on_host {
#define PARTS 15
namespace of_float {
#define ELEMENT float
#include "kernels_on_host.inc"
#undef ELEMENT
}  // namespace of_float
namespace of_bfloat16 {
#define ELEMENT unsigned short
#define BFLOAT16
#include "kernels_on_host.inc"
#undef BFLOAT16
#undef ELEMENT
}  // namespace of_bfloat16
}  // namespace on_host

using namespace torchtap_test;
using on_host::Index;
using on_host::launch;
namespace of_float = on_host::of_float;
namespace of_bfloat16 = on_host::of_bfloat16;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Moments of `kept` elements, and all rows that went in.
struct Moments {
  explicit Moments(std::int64_t kept) : all(at::zeros({4, kept}, at::kDouble)) {}

  template <class State>
  State state() const {
    double* const first = all.data_ptr<double>();
    const std::int64_t kept = all.size(1);
    return {rows, first, first + kept, first + 2 * kept, first + 3 * kept};
  }
  void add(const at::Tensor& sample) {  // [rows, kept]
    seen.push_back(sample.to(at::kDouble));
    rows += static_cast<double>(sample.size(0));
  }
  void check() const {
    const at::Tensor x = at::cat(seen), mean = x.mean(0), d = x - mean;
    BOOST_TEST(close(all[0], mean, 1e-12));
    BOOST_TEST(close(all[1], d.pow(2).sum(0), 1e-10));
    BOOST_TEST(close(all[2], d.pow(3).sum(0), 1e-8, 1e-6));
    BOOST_TEST(close(all[3], d.pow(4).sum(0), 1e-9));
  }

  at::Tensor all;  // mean, m2, m3, m4
  double rows = 0;
  std::vector<at::Tensor> seen;
};

unsigned long long* counters(const at::Tensor& counts) {
  return reinterpret_cast<unsigned long long*>(counts.data_ptr<std::int64_t>());
}

/// How often each number occurs in each column of `slots`, [columns, width].
at::Tensor occurrences(const at::Tensor& slots, std::int64_t width) {
  at::Tensor counts = at::zeros({slots.size(1), width}, at::kLong);
  return counts.scatter_add_(1, slots.t(), at::ones({}, at::kLong).expand({slots.size(1), slots.size(0)}));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_kernels)

BOOST_AUTO_TEST_CASE(moments_of_neighbouring_elements) {
  at::manual_seed(0);
  const std::int64_t kept = 70, rows = 203;
  for (const int chunks : {1, 3}) {
    Moments moments(kept);
    for (int i = 0; i < 3; ++i) {
      const at::Tensor x = at::randn({rows, kept}) * 3 + 1000,
                       partial = at::empty({chunks, kept, 6}, at::kDouble);
      const std::int64_t chunk = (rows + chunks - 1) / chunks;
      const auto state = moments.state<of_float::State>();
      double* const between = chunks == 1 ? nullptr : partial.data_ptr<double>();
      launch(of_float::moments_of_columns, {3, chunks}, {32, 8}, x.data_ptr<float>(), rows, kept, chunk,
             state, between);
      if (between != nullptr)
        launch(of_float::moments_of_chunks, {static_cast<int>(kept), 1}, {32, 1}, between, chunks, kept,
               static_cast<double>(rows), state);
      moments.add(x);
    }
    moments.check();
  }
}

BOOST_AUTO_TEST_CASE(moments_of_single_rows_of_bfloat16) {
  at::manual_seed(0);
  Moments moments(300);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor x = at::randn({1, 300}).to(at::kBFloat16);
    launch(of_bfloat16::moments_of_columns, {2, 1}, {256, 1},
           static_cast<const unsigned short*>(x.data_ptr()), 1, 300, 1, moments.state<of_bfloat16::State>(),
           nullptr);
    moments.add(x);
  }
  moments.check();
}

BOOST_AUTO_TEST_CASE(moments_of_runs) {
  at::manual_seed(0);
  const std::int64_t outer = 3, inner = 900, rows = outer * inner;
  for (const std::int64_t kept : {1, 5}) {
    for (const int chunks : {1, 4}) {
      Moments moments(kept);
      for (int i = 0; i < 2; ++i) {
        const at::Tensor x = at::randn({outer, kept, inner}),
                         partial = at::empty({chunks, kept, 6}, at::kDouble);
        const auto state = moments.state<of_float::State>();
        double* const between = chunks == 1 ? nullptr : partial.data_ptr<double>();
        launch(of_float::moments_of_runs, {static_cast<int>(kept), chunks}, {256, 1}, x.data_ptr<float>(),
               outer, kept, inner, (rows + chunks - 1) / chunks, state, between);
        if (between != nullptr)
          launch(of_float::moments_of_chunks, {static_cast<int>(kept), 1}, {32, 1}, between, chunks, kept,
                 static_cast<double>(rows), state);
        moments.add(x.permute({0, 2, 1}).reshape({-1, kept}));
      }
      moments.check();
    }
  }
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_stays_with_its_element) {
  at::manual_seed(0);
  Moments moments(3);
  at::Tensor x = at::randn({40, 3});
  x[3][0] = kInfinity;
  x[5][1] = kNaN;
  launch(of_float::moments_of_columns, {1, 1}, {32, 8}, x.data_ptr<float>(), 40, 3, 40,
         moments.state<of_float::State>(), nullptr);
  moments.rows = 40;
  x = at::randn({40, 3});
  launch(of_float::moments_of_columns, {1, 1}, {32, 8}, x.data_ptr<float>(), 40, 3, 40,
         moments.state<of_float::State>(), nullptr);
  BOOST_TEST(moments.all[0][0].item<double>() == kInfinity);
  BOOST_TEST(std::isnan(moments.all[0][1].item<double>()));
  BOOST_TEST(std::isnan(moments.all[1][0].item<double>()));
  BOOST_TEST(std::isfinite(moments.all[1][2].item<double>()));
}

BOOST_AUTO_TEST_CASE(kinds_are_counted) {
  at::manual_seed(0);
  at::Tensor x = at::randn({5000});
  x[7] = kNaN;
  x[8] = x[10] = 0;
  x[9] = -kInfinity;
  const at::Tensor counts = at::zeros({3}, at::kLong);
  auto* const to = counters(counts);
  launch(of_float::count_kinds, {4, 1}, {256, 1}, x.data_ptr<float>(), 5000, to, to + 1, to + 2);
  BOOST_TEST(counts.equal(at::tensor({1, 1, 2}, at::kLong)));
}

BOOST_AUTO_TEST_CASE(bins_of_a_given_range) {
  at::manual_seed(0);
  const std::int64_t bins = 16, outer = 20, inner = 50;
  for (const std::int64_t kept : {1, 4}) {
    for (const int shared : {0, kept == 1 ? 19 : 0}) {
      at::Tensor x = at::randn({outer, kept, inner}) * 2;
      const float odd[] = {kNaN, kInfinity, -kInfinity, 4, -4, -0.5F, 3.5F};
      for (int i = 0; i < 7; ++i) x[0][0][i] = odd[i];
      const at::Tensor edges = at::linspace(-4, 4, bins + 1, at::kDouble),
                       counts = at::zeros({kept, bins + 3}, at::kLong);
      launch(of_float::count_bins, {3, 1}, {256, 1}, x.data_ptr<float>(), x.numel(), kept, inner, shared,
             counters(counts), bins, edges.data_ptr<double>());
      const at::Tensor flat = x.permute({0, 2, 1}).reshape({-1, kept}).to(at::kDouble);
      at::Tensor slots = (at::bucketize(flat, edges, false, /*right=*/true) - 1).clamp_(0, bins - 1);
      slots.masked_fill_(flat < -4, bins)
          .masked_fill_(flat > 4, bins + 1)
          .masked_fill_(flat.isnan(), bins + 2);
      BOOST_TEST(counts.equal(occurrences(slots, bins + 3)));
    }
  }
}

#if __has_include(<torchtap/reductions/statistics.hpp>)
BOOST_AUTO_TEST_CASE(bins_of_a_growing_range) {
  at::manual_seed(0);
  const std::int64_t bins = 16, rows = 700;
  for (const std::int64_t kept : {1, 3}) {
    torchtap::reductions::Histogram want(torchtap::reductions::HistogramOptions(bins).over({0}));
    const at::Tensor counts = at::zeros({kept, bins + 3}, at::kLong),
                     merged = at::empty({kept, bins}, at::kLong);
    double min = kInfinity, max = -kInfinity, found[6];
    const auto nothing = of_float::covering(min, max, bins);
    long long exponent = nothing.exponent, start = nothing.start, former[2], now[2];
    for (const double scale : {0.001, 1.0, 30.0, 1.0}) {
      at::Tensor x = at::randn({rows, kept}) * scale;
      x[3][0] = kNaN;
      x[4][0] = -kInfinity;
      launch(of_float::find_extrema, {3, 1}, {256, 1}, x.data_ptr<float>(), x.numel(), found);
      launch(of_float::grow_range, {1, 1}, {1, 1}, found, 3, bins, &min, &max, &exponent, &start, former,
             now);
      launch(of_float::regroup_bins, {1, 1}, {256, 1}, former, now, kept, bins, counters(counts),
             counters(merged));
      launch(of_float::count_cells, {3, 1}, {256, 1}, x.data_ptr<float>(), x.numel(), kept, 1,
             kept == 1 ? 19 : 0, counters(counts), bins, now);
      want.update(x);
    }
    BOOST_TEST(counts.narrow(1, 0, bins).equal(want.counts().reshape({kept, bins})));
    BOOST_TEST(counts.select(1, bins).equal(want.underflow().reshape({kept})));
    BOOST_TEST(counts.select(1, bins + 2).equal(want.nan().reshape({kept})));
    BOOST_TEST(std::ldexp(static_cast<double>(start), static_cast<int>(exponent)) ==
               want.edges()[0].item<double>());
  }
}
#endif

BOOST_AUTO_TEST_CASE(slots_of_bits) {
  at::manual_seed(0);
  at::Tensor x = at::randn({4000});
  x = x * at::pow(10, at::randn({4000}) * 12);
  const float odd[] = {0, kNaN, kInfinity, -kInfinity, 1e-42F, -1e-40F, 3e38F, -0.0F};
  for (int i = 0; i < 8; ++i) x[i] = odd[i];
  for (const int bits : {0, 3, 5}) {
    // By the definition of reductions::extend::BitBins, of the bits of float32 themselves.
    const std::int64_t negative = std::int64_t{256} << bits, width = 2 * negative + 2;
    const at::Tensor raw = x.view(at::kInt).to(at::kLong), magnitude = at::bitwise_and(raw, 0x7FFFFFFF);
    at::Tensor slots = at::bitwise_right_shift(magnitude, 23 - bits) + (raw < 0).to(at::kLong) * negative;
    slots.masked_fill_(magnitude > 0x7F800000, 2 * negative).masked_fill_(magnitude == 0, 2 * negative + 1);
    for (const int shared : {0, static_cast<int>(width)}) {
      const at::Tensor counts = at::zeros({1, width}, at::kLong);
      launch(of_float::count_bits, {3, 1}, {256, 1}, x.data_ptr<float>(), 4000, 1, 1, shared,
             counters(counts), bits, std::ldexp(1.0, 126 + bits));
      BOOST_TEST(counts.equal(occurrences(slots.unsqueeze(1), width)));
    }
  }
}

BOOST_AUTO_TEST_CASE(without_a_device_the_error_says_what_is_missing,
                     *only_where([] { return !at::hasCUDA(); }, "there is a device")) {
  const bool without_cuda =
      !c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA);  // otherwise the driver is missing
  BOOST_CHECK_EXCEPTION(
      torchtap::cuda::enable_fused_kernels(), c10::Error,
      says({"torchtap::cuda::enable_fused_kernels: the", without_cuda ? "has no CUDA" : "until then"}));
  BOOST_TEST(!torchtap::cuda::fused_kernels_enabled());
}

BOOST_AUTO_TEST_SUITE_END()
