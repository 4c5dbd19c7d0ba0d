// Tests the loops of the reductions against plain definitions, for all types, sizes and alignments, numbers
// at and next to edges, and all non-finite values.

#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <torchtap/reductions/fast/kernels.hpp>

BOOST_AUTO_TEST_SUITE(kernels_tests)

using namespace torchtap::reductions::detail;
using torchtap::reductions::Summary;
namespace bdata = boost::unit_test::data;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

/// A signalling NaN with a sign, in each type.
at::Tensor odd_nan(at::ScalarType type) {
  const std::int64_t bits = type == at::kDouble  ? std::int64_t{0x7FF0000000000001}
                            : type == at::kFloat ? 0x7F800001
                            : type == at::kHalf  ? 0x7C01
                                                 : 0x7F81;
  at::Tensor result = at::empty({1}, type);
  std::memcpy(result.data_ptr(), &bits, result.element_size());  // little-endian
  return result;
}

struct Range {
  std::int64_t bins;
  double low, high;
};

/// Numbers in and around a range, on and next to its edges, and all non-finite values, in random order.
at::Tensor numbers_around(const Range& range, const at::Tensor& edges, at::ScalarType type) {
  const double width = range.high - range.low;
  const at::Tensor narrow = edges.to(at::kFloat), up = at::full({}, kInfinity, at::kFloat);
  const at::Tensor special =
      at::tensor({kNaN, kInfinity, -kInfinity, 0.0, -0.0, 3e38, -3e38, 1e-45, -1e-45, 65504.0, range.low,
                  range.high, range.low - 2 * width, range.high + 2 * width});
  const at::Tensor numbers =
      at::cat({at::rand({2000}, at::kDouble) * (1.2 * width) + (range.low - 0.1 * width),
               at::randn({1000}, at::kDouble), edges, edges * (1 + 1e-7), edges * (1 - 1e-7),
               at::nextafter(edges, up.to(at::kDouble)), at::nextafter(edges, -up.to(at::kDouble)),
               at::nextafter(narrow, up).to(at::kDouble), at::nextafter(narrow, -up).to(at::kDouble),
               special.to(at::kDouble).repeat({10})});
  const at::Tensor all = at::cat({numbers.to(type), odd_nan(type).repeat({10})});
  return all.index({at::randperm(all.numel())});
}

/// The counters of BinEdges, by comparison with every edge.
at::Tensor counters_of(const at::Tensor& edges, const at::Tensor& x) {
  const std::int64_t bins = edges.numel() - 1;
  const at::Tensor wide = x.to(at::kDouble);
  at::Tensor counters =
      at::bucketize(wide, edges, /*out_int32=*/false, /*right=*/true).sub_(1).clamp_(0, bins - 1);
  counters.masked_fill_(wide < edges[0], bins).masked_fill_(wide > edges[-1], bins + 1);
  return counters.masked_fill_(wide.isnan(), bins + 2);
}

std::vector<double> vector_of(const at::Tensor& edges) {
  return {edges.data_ptr<double>(), edges.data_ptr<double>() + edges.numel()};
}

/// Counts a few elements, which have these `counters`, each with counters of its own that are not zero.
void check_columns(const BinEdges& edges, const at::Tensor& x, const at::Tensor& counters) {
  const std::int64_t n = x.numel();
  if (n == 0 || n > 130 || n * edges.counters() > 100'000) return;
  at::Tensor counts = at::full({n, edges.counters()}, 5, at::kLong);
  kernels()->count_columns(x.scalar_type(), x.data_ptr(), static_cast<std::size_t>(n), edges,
                           counts.data_ptr<std::int64_t>());
  const at::Tensor want = at::full_like(counts, 5).scatter_(1, counters.unsqueeze(1), 6);
  BOOST_TEST(counts.equal(want), x.toString() << ", " << edges.bins() << " bins for each of " << n);
}

/// Counts part of `x`, whose elements have these `counters`, with counters that are not zero.
void check_counts(const BinEdges& edges, const at::Tensor& x, const at::Tensor& counters, std::int64_t from,
                  std::int64_t n) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(edges.counters()), 5);
  kernels()->count_bins(x.scalar_type(), static_cast<const char*>(x.data_ptr()) + from * x.element_size(),
                        static_cast<std::size_t>(n), edges, counts.data());
  const at::Tensor want = at::bincount(counters.narrow(0, from, n), {}, edges.counters()).add_(5);
  BOOST_TEST(at::tensor(counts).equal(want),
             x.toString() << ", " << edges.bins() << " bins from " << edges.edges().front() << " to "
                          << edges.edges().back() << ", " << n << " numbers from the " << from << "th");
  check_columns(edges, x.narrow(0, from, n), counters.narrow(0, from, n));
}

/// Runs a test with each instruction set that this processor has, not only with the best.
template <class F>
void with_all_instruction_sets(const F& f) {
  const std::int64_t all = instruction_sets();
  for (int bit = 0; bit < 63; ++bit) {
    const std::int64_t one = std::int64_t{1} << bit;
    if ((all & one) == 0) continue;
    use_instruction_sets(one);
    BOOST_TEST_CONTEXT("instruction set " << bit) f();
  }
  use_instruction_sets(0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(kernels_test, *boost::unit_test::precondition([](boost::unit_test::test_unit_id) {
                        return kernels() != nullptr;
                      }))

BOOST_DATA_TEST_CASE(any_number_of_bins_counts_every_number_where_it_belongs,
                     bdata::xrange(1, 201) + bdata::make({252, 253, 254, 255, 256, 1000, 4093, 4094, 5000}),
                     bins) {
  at::manual_seed(static_cast<std::uint64_t>(bins));
  std::mt19937 random(static_cast<unsigned>(bins));
  const Range range{bins, -4, 4};
  const at::Tensor edges = at::linspace(range.low, range.high, bins + 1, at::kDouble);
  const BinEdges fixed(vector_of(edges));
  for (const auto type : kTypes) {
    const at::Tensor x = numbers_around(range, edges, type), counters = counters_of(edges, x);
    check_counts(fixed, x, counters, 0, x.numel());
    for (int part = 0; part < 5; ++part) {
      const std::int64_t n = random() % (part < 2 ? 1100 : x.numel() + 1),
                         from = random() % (x.numel() - n + 1);
      check_counts(fixed, x, counters, from, n);
    }
  }
}

BOOST_AUTO_TEST_CASE(any_range_counts_every_number_where_it_belongs) {
  at::manual_seed(0);
  for (const std::int64_t bins : {1, 10, 64, 100, 300}) {
    for (const auto& [low, high] : {std::pair{0.0, 1.0},
                                    {0.1, 0.7},
                                    {-1e-3, 1e3},
                                    {100.0, 101.0},
                                    {1e6, 1e6 + 1},
                                    {1e-40, 3e-40},
                                    {-3e38, 3e38},
                                    {1e-310, 2e-310},
                                    {-1e300, 1e300}}) {
      const Range range{bins, low, high};
      const at::Tensor edges = at::linspace(low, high, bins + 1, at::kDouble);
      for (const auto type : kTypes) {
        const at::Tensor x = numbers_around(range, edges, type), counters = counters_of(edges, x);
        check_counts(BinEdges(vector_of(edges)), x, counters, 0, x.numel());
        check_counts(BinEdges(vector_of(edges)), x, counters, 3, 1000);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(any_length_counts_every_number_where_it_belongs) {
  at::manual_seed(0);
  const Range range{64, -4, 4};
  const at::Tensor edges = at::linspace(range.low, range.high, range.bins + 1, at::kDouble);
  const BinEdges fixed(vector_of(edges));
  for (const auto type : kTypes) {
    const at::Tensor x = (at::randn({70003}) * 2).to(type), counters = counters_of(edges, x);
    for (std::int64_t n = 0; n < 1200; n += 7) check_counts(fixed, x, counters, n % 5, n);
    for (const std::int64_t n : {4095, 4096, 4097, 8193, 65535, 65536, 65537, 70000})
      check_counts(fixed, x, counters, n % 4, n);
  }
}

namespace {

struct Edged {
  const char* name;
  at::Tensor edges;
};

/// Edges of all the ways in which values find their bins: even and not, few and many, narrow and far from
/// zero.
std::vector<Edged> kinds_of_edges() {
  const auto even = [](double low, double high, std::int64_t bins) {
    return at::linspace(low, high, bins + 1, at::kDouble);
  };
  const auto cells = [](double start, std::int64_t bins, int exponent) {
    return (at::arange(bins + 1, at::kDouble) + start) * std::ldexp(1.0, exponent);
  };
  return {{"64 bins from -4 to 4", even(-4, 4, 64)},
          {"64 bins from 0 to 6", even(0, 6, 64)},
          {"256 bins of width 1", even(0, 256, 256)},
          {"1 bin", even(-1, 1, 1)},
          {"1000 bins from -4 to 4", even(-4, 4, 1000)},
          {"4096 even bins", even(-4, 4, 4096)},
          {"100 uneven bins", even(-4, 4, 100)},
          {"10 uneven bins from 0 to 1", even(0, 1, 10)},
          {"7 uneven bins around 0", even(-0.3, 0.3, 7)},
          {"3 bins far from zero", even(1e6, 1e6 + 1, 3)},
          {"cells around 0", cells(-30, 64, -3)},
          {"cells above 0", cells(0, 64, -20)},
          {"small cells", cells(-17, 64, -126)},
          {"cells of subnormal numbers", cells(0, 64, -155)},
          {"the least cells", cells(0, 64, -1022)},
          {"large cells", cells(-40, 64, 100)},
          {"cells far from zero", cells(4096000, 64, -12)},
          {"cells as far as they can be", cells(1L << 51, 64, 0)}};
}

/// Values concentrated on or next to few edges, in float64.
std::vector<std::pair<const char*, at::Tensor>> concentrated(const at::Tensor& edges) {
  const std::int64_t n = 1500;
  const at::Tensor normal = at::randn({n}, at::kDouble);
  const double width = (edges[1] - edges[0]).item<double>();
  const auto some_edges = edges.index({at::randint(edges.numel(), {n}, at::kLong)});
  const auto mix = [&](const at::Tensor& a, const at::Tensor& b) {
    return at::where(at::rand({n}) < 0.5, a, b);
  };
  const auto all = [&](const at::Tensor& value) { return value.expand({n}).clone(); };
  const at::Tensor away = at::full({}, kInfinity, at::kDouble);
  return {{"normal", normal * width * 8 + edges.mean()},
          {"after a ReLU", normal.relu()},
          {"zeros", at::zeros({n}, at::kDouble)},
          {"zeros of both signs", normal * 0},
          {"gradients", normal * 1e-5},
          {"far less than a bin around zero", normal * width * 1e-9},
          {"the lowest edge", all(edges[0])},
          {"the highest edge", all(edges[-1])},
          {"the outer edges", mix(all(edges[0]), all(edges[-1]))},
          {"one edge in the middle", all(edges[edges.numel() / 2])},
          {"edges", some_edges},
          {"edges and gradients", mix(some_edges, normal * 1e-5)},
          {"just above edges", at::nextafter(some_edges, away)},
          {"just below edges", at::nextafter(some_edges, -away)},
          {"near edges as float32",
           at::nextafter(some_edges.to(at::kFloat), -away.to(at::kFloat)).to(at::kDouble)},
          {"near one edge", all(edges[edges.numel() / 3]) + normal * width * 1e-6},
          {"one number", all(edges[0] + 0.3 * width)},
          {"with NaN", mix(at::zeros({n}, at::kDouble), all(at::full({}, kNaN, at::kDouble)))},
          {"with infinities", mix(normal * kInfinity, some_edges)}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(concentrated_values_count_where_they_belong) {
  for (const auto& [edges_name, edges] : kinds_of_edges()) {
    at::manual_seed(1);
    const BinEdges fixed(vector_of(edges));
    for (const auto& [name, values] : concentrated(edges)) {
      for (const auto type : kTypes) {
        const at::Tensor x = values.to(type), counters = counters_of(edges, x);
        BOOST_TEST_CONTEXT(name << ", " << edges_name) {
          for (std::int64_t i = 0; i < 100; ++i) {
            const double value = x[i].item<double>();
            BOOST_REQUIRE(fixed.counter_of(value) == counters[i].item<std::int64_t>());
          }
          with_all_instruction_sets([&, x = x] {
            // Around the lengths of vectors and blocks.
            for (const std::int64_t n :
                 {1, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 511, 513, 767, 768, 769, 1025, 1490})
              check_counts(fixed, x, counters, n % 7, n);
          });
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(even_edges_are_computed) {
  // Which edges need no table is about speed, so nothing else would show it.
  const auto is_even = [](const at::Tensor& edges) {
    return BinEdges(vector_of(edges)).rulers<float>().even.fits;
  };
  BOOST_TEST(is_even(at::linspace(-4, 4, 65, at::kDouble)));
  BOOST_TEST(is_even(at::linspace(0, 6, 65, at::kDouble)));
  BOOST_TEST(is_even(at::linspace(0.25, 10.25, 11, at::kDouble)));
  BOOST_TEST(is_even((at::arange(65, at::kDouble) - 20) * 0x1p-40));
  BOOST_TEST(!is_even(at::linspace(0, 1, 11, at::kDouble)));
  BOOST_TEST(!is_even(at::linspace(-4, 4, 101, at::kDouble)));
}

BOOST_AUTO_TEST_CASE(extrema_and_zeros_of_any_sign_are_found) {
  at::manual_seed(0);
  for (const auto type : kTypes) {
    const at::Tensor floats = at::randn({70003}), normal = floats.to(type);
    const std::vector<std::pair<const char*, at::Tensor>> kinds{
        {"both", normal},
        {"positive", normal.abs() + 1},
        {"negative", -normal.abs() - 1},
        {"no positive ones", -floats.relu().to(type)},
        {"no negative ones", floats.relu().to(type)},
        {"zeros", at::zeros_like(normal)},
        {"negative zeros", -at::zeros_like(normal)},
        {"zeros of both signs", normal * 0},
        {"one number", at::full_like(normal, -3.5)},
        {"subnormal ones", normal * (type == at::kHalf     ? 1e-7
                                     : type == at::kDouble ? 1e-309
                                                           : 1e-39)},
        {"large ones", normal * (type == at::kHalf ? 1e4 : 1e36)}};
    for (const auto& [name, x] : kinds) {
      const at::Tensor wide = x.to(at::kDouble);
      for (const auto& [from, n] : {std::pair<std::int64_t, std::int64_t>{0, 70003},
                                    {1, 70000},
                                    {3, 32768},
                                    {5, 32769},
                                    {0, 2048},
                                    {7, 2111},
                                    {2, 3136},
                                    {1, 100},
                                    {0, 1}}) {
        for (const bool moments : {false, true}) {
          Summary got;
          kernels()->run(type, static_cast<const char*>(x.data_ptr()) + from * x.element_size(),
                         static_cast<std::size_t>(n), {moments, /*zeros=*/true}, &got);
          const at::Tensor part = wide.narrow(0, from, n);
          BOOST_TEST_CONTEXT(x.toString() << ", " << name << ", " << n << " from the " << from << "th") {
            BOOST_TEST(got.taken == n);
            BOOST_TEST(got.min == part.min().item<double>());
            BOOST_TEST(got.max == part.max().item<double>());
            BOOST_TEST(got.zeros == (part == 0).sum().item<std::int64_t>());
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(half_precision_is_read_bit_by_bit) {
  // Every number of the type, including those with the largest exponent, alone among zeros.
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor all = at::arange(-32768, 32768, at::kInt).to(at::kShort).view(type);
    const at::Tensor wide = all.to(at::kDouble);
    Summary got;
    kernels()->run(type, all.data_ptr(), static_cast<std::size_t>(all.numel()), {true, true}, &got);
    const at::Tensor finite = wide.masked_select(wide.isfinite());
    BOOST_TEST(got.taken == finite.numel());
    BOOST_TEST(got.nan == wide.isnan().sum().item<std::int64_t>());
    BOOST_TEST(got.positive_infinities == 1);
    BOOST_TEST(got.negative_infinities == 1);
    BOOST_TEST(got.zeros == 2);
    BOOST_TEST(got.max == finite.max().item<double>());
    BOOST_TEST(got.min == finite.min().item<double>());
    const Range range{100, -2, 2};
    const at::Tensor edges = at::linspace(range.low, range.high, range.bins + 1, at::kDouble);
    check_counts(BinEdges(vector_of(edges)), all, counters_of(edges, all), 0, all.numel());
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
