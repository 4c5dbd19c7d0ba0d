// Tests that small samples in the CPU's memory are folded as others are: a negative view has the values of a
// plain tensor but is not one, so it takes the path of ATen's operations.

#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <reductions/support.hpp>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>

#include <torchtap/reductions/reductions.hpp>

#include "tests/only_where.hpp"

#ifndef __has_feature  // Clang's
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer)
#define TORCHTAP_TEST_COUNTS_ALLOCATIONS 0  // sanitizers have allocators of their own
#else
#define TORCHTAP_TEST_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::atomic<std::int64_t> allocations{0};
}

#if TORCHTAP_TEST_COUNTS_ALLOCATIONS
void* operator new(std::size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif

BOOST_AUTO_TEST_SUITE(small)

using namespace torchtap;
using namespace torchtap::reductions;
namespace bdata = boost::unit_test::data;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Way {
  const char* name;
  std::vector<std::int64_t> over;
  bool all = false;

  template <class Options>
  Options operator()(Options options) const {
    return options.over(over).over_all(all);
  }
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all{{"elementwise", {}}, {"rows", {0}}, {"all", {}, true}};
  return all;
}

std::vector<Any> reductions_of(const Way& way, at::ScalarType type) {
  std::vector<Any> all{Sum(way(SumOptions())),
                       Mean(way(MeanOptions())),
                       AbsMax(way(AbsMaxOptions())),
                       Min(way(MinOptions())),
                       Max(way(MaxOptions())),
                       Norm(way(NormOptions())),
                       Norm(way(NormOptions().p(1))),
                       Norm(way(NormOptions().p(3))),
                       Norm(way(NormOptions().p(kInfinity))),
                       Count(way(CountOptions())),
                       First(way(FirstOptions())),
                       Last(way(LastOptions())),
                       Moments(way(MomentsOptions())),
                       Moments(way(MomentsOptions().order(2)))};
#if __has_include(<torchtap/reductions/statistics.hpp>)
  all.emplace_back(EMA(way(EMAOptions(0.75))));
  all.emplace_back(LogHistogram(way(LogHistogramOptions())));
#endif
  static_cast<void>(type);
  return all;
}

/// Samples of one shape: numbers of both signs, and zeros of both.
at::Tensor sample(std::int64_t rows, std::int64_t columns, at::ScalarType type, int seed) {
  at::manual_seed(seed);
  at::Tensor x = at::randn({rows, columns}, at::kDouble).mul_(3);
  if (type == at::kByte || type == at::kBool) x = x.abs();
  x.masked_fill_(x.abs().lt(0.3), 0.0);
  if (c10::isFloatingType(type)) x.view(-1)[0] = -0.0;
  return x.to(type);
}

void check_close(const core::Results& got, const core::Results& want, double rtol) {
  BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
  for (const auto& [name, tensor] : want) {
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST(got.at(name).scalar_type() == tensor.scalar_type());
      BOOST_TEST(close(got.at(name), tensor, rtol));
    }
  }
}

/// The most that the order of additions may change, in the dtype in which they are made.
double tolerance(const std::string& reduction, at::ScalarType type) {
  for (const char* const exact : {"Min", "Max", "AbsMax", "Count", "First", "Last", "LogHistogram"}) {
    if (reduction.rfind(exact, 0) == 0) return 0.0;
  }
  // Of many numbers of low precision, powers may be summed in float32.
  if (reduction.rfind("Moments", 0) == 0 || reduction.rfind("Norm", 0) == 0) return 1e-6;
  return type == at::kDouble || c10::isIntegralType(type, true) ? 1e-11 : 1e-5;
}

void compare(const std::vector<at::Tensor>& samples, const Way& way, at::ScalarType type) {
  for (Any& fast : reductions_of(way, type)) {
    Any slow = fast.fresh();
    BOOST_TEST_CONTEXT(fast.describe() << " of " << c10::toString(type) << samples.front().sizes()) {
      for (const at::Tensor& x : samples) {
        fast.check(x);
        fast.update(x);
        slow.update(by_operations(x));
      }
      BOOST_TEST(fast.count() == slow.count());
      check_close(fast.results(), slow.results(), tolerance(fast.describe(), type));
    }
  }
}

const at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                 at::kInt,   at::kShort,  at::kChar, at::kByte,     at::kBool};

}  // namespace

BOOST_DATA_TEST_CASE(as_by_operations,
                     bdata::make(kTypes) *
                         bdata::make({1, 2, 3, 7, 16, 33, 100, 255, 256, 257, 1000, 4096, 32768, 32769}),
                     type, columns) {
  for (const Way& way : ways()) {
    std::vector<at::Tensor> samples;
    for (int i = 0; i < 4; ++i) samples.push_back(sample(1, columns, type, i));
    compare(samples, way, type);
  }
}

BOOST_DATA_TEST_CASE(rows_as_by_operations, bdata::make(kTypes) * bdata::make({2, 3, 32}), type, rows) {
  for (const Way& way : ways()) {
    for (const std::int64_t columns : {1, 15, 16, 17, 300}) {
      std::vector<at::Tensor> samples;
      for (int i = 0; i < 3; ++i) samples.push_back(sample(rows, columns, type, i));
      compare(samples, way, type);
    }
  }
}

BOOST_DATA_TEST_CASE(what_is_not_finite, bdata::make({at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}),
                     type) {
  for (const Way& way : ways()) {
    for (const double special : {kNaN, kInfinity, -kInfinity}) {
      for (const int at : {0, 1, 2}) {  // in the first sample, or in one that follows
        std::vector<at::Tensor> samples;
        for (int i = 0; i < 3; ++i) samples.push_back(sample(1, 20, type, i));
        samples[static_cast<std::size_t>(at)].view(-1)[7] = special;
        compare(samples, way, type);
        samples[2].view(-1)[7] = -special;
        compare(samples, way, type);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(all_half_numbers_are_read) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor bits = at::arange(-32768, 32768, at::kInt).to(at::kShort);
    for (const at::Tensor& part : bits.view(type).split(8192)) {
      Sum fast, slow;
      for (int i = 0; i < 2; ++i) {
        fast.update(part);
        slow.update(by_operations(part));
      }
      BOOST_TEST(close(fast.value(), slow.value(), 0.0));
    }
  }
}

BOOST_AUTO_TEST_CASE(sums_and_extrema_of_integers_are_exact) {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  const at::Tensor x = at::tensor({big, -big - 2, std::int64_t{5}});
  const auto min = std::numeric_limits<std::int64_t>::min();
  Sum sum(SumOptions().over_all(true));
  Min least(MinOptions().over_all(true));
  Max most(MaxOptions().over_all(true));
  AbsMax magnitude(AbsMaxOptions().over_all(true));
  for (int i = 0; i < 3; ++i) {
    sum.update(x);
    least.update(x);
    most.update(x);
    magnitude.update(x);
  }
  BOOST_TEST(sum.value().item<std::int64_t>() == 9);
  BOOST_TEST(least.value().item<std::int64_t>() == -big - 2);
  BOOST_TEST(most.value().item<std::int64_t>() == big);
  BOOST_TEST(magnitude.value().item<std::int64_t>() == big + 2);
  // As torch's abs: the least number is its own.
  AbsMax one;
  for (int i = 0; i < 2; ++i) one.update(at::tensor({min}));
  BOOST_TEST(one.value().item<std::int64_t>() == at::tensor({min}).abs().item<std::int64_t>());
}

BOOST_AUTO_TEST_CASE(samples_that_differ_from_those_before) {
  for (const Way& way : ways()) {
    for (Any& fast : reductions_of(way, at::kFloat)) {
      Any slow = fast.fresh();
      BOOST_TEST_CONTEXT(fast.describe()) {
        const auto both = [&](const at::Tensor& x) {
          fast.update(x);
          slow.update(by_operations(x));
        };
        both(sample(2, 40, at::kFloat, 1));
        both(sample(2, 40, at::kFloat, 2));
        both(sample(2, 40, at::kDouble, 3));  // another dtype
        both(sample(2, 40, at::kFloat, 4));
        both(sample(40, 2, at::kFloat, 5).t());  // not contiguous
        both(sample(2, 40, at::kFloat, 6));
        if (way.all || !way.over.empty()) both(sample(5, 40, at::kFloat, 7));
        check_close(fast.results(), slow.results(), 1e-5);
        if (fast.describe().rfind("Count", 0) == 0) continue;  // it takes any shape
        const auto before = fast.results();
        if (!way.all) BOOST_CHECK_THROW(fast.update(sample(2, 41, at::kFloat, 8)), c10::ValueError);
        BOOST_CHECK_THROW(fast.update(at::Tensor()), c10::TypeError);
        check_close(fast.results(), before, 0.0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_first_sample_is_not_contiguous) {
  at::manual_seed(2);
  const at::Tensor first = at::randn({3, 4, 5, 6}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor next = at::randn({3, 4, 5, 6});
  for (const Way& way : ways()) {
    for (Any& fast : reductions_of(way, at::kFloat)) {
      Any slow = fast.fresh();
      BOOST_TEST_CONTEXT(fast.describe()) {
        for (const at::Tensor& x : {first, next, first, next}) {
          fast.update(x);
          slow.update(by_operations(x));
        }
        check_close(fast.results(), slow.results(), 1e-5);
      }
    }
  }
}

/// The layout that a reduction remembers is that of its samples, whatever becomes of the reduction.
BOOST_AUTO_TEST_CASE(a_remembered_layout_ends_with_the_samples) {
  const at::Tensor x = sample(2, 40, at::kFloat, 1), wide = sample(2, 40, at::kDouble, 2);
  for (const Way& way : ways()) {
    for (Any& fast : reductions_of(way, at::kFloat)) {
      Any slow = fast.fresh();
      BOOST_TEST_CONTEXT(fast.describe()) {
        const auto both = [&](const at::Tensor& sample) {
          fast.update(sample);
          slow.update(by_operations(sample.detach()));
        };
        for (int i = 0; i < 3; ++i) both(x);
        both(x.clone().requires_grad_());
        both(at::_neg_view(x));
        both(x.expand({2, 40}).slice(1, 0, 40, 1));
        Any copy = fast;
        copy.update(x);
        BOOST_TEST(copy.count() > fast.count());
        const auto is = [&](const char* name) { return fast.describe().rfind(name, 0) == 0; };
        if (!is("First") && !is("Last") && !is("EMA")) {  // the order matters
          Any other = fast.fresh();
          other.update(wide);
          fast.merge(other);
          slow.merge(other);
          both(x);  // of float32 beside a state of float64
        }
        check_close(fast.results(), slow.results(), 1e-5);
        // Loaded over samples of another shape, which are none of its own any more.
        std::stringstream stream;
        {
          core::OutputArchive archive(stream);
          archive(fast);
        }
        const at::Tensor narrow = sample(2, 7, at::kFloat, 3);
        Any loaded = fast.fresh();
        for (int i = 0; i < 3; ++i) loaded.update(narrow);
        core::InputArchive archive(stream);
        archive(loaded);
        check_close(loaded.results(), fast.results(), 0.0);
        if (!way.all && !is("Count")) BOOST_CHECK_THROW(loaded.update(narrow), c10::ValueError);
        check_close(loaded.results(), fast.results(), 0.0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(an_assigned_value_of_another_dtype) {
  const at::Tensor x = sample(1, 30, at::kFloat, 1);
  Max max;
  max.update(x);
  max.assign(x.to(at::kDouble).add(1));
  max.update(x.add(2));
  BOOST_TEST(close(max.value(), x.add(2), 1e-6));
  Sum sum;
  sum.update(x);
  sum.assign(x.to(at::kHalf));
  sum.update(x);
  BOOST_TEST(close(sum.value(), x.to(at::kHalf).to(at::kFloat) + x, 1e-6));
}

BOOST_AUTO_TEST_CASE(nothing_is_allocated_after_the_first,
                     *torchtap_test::only_where([] { return TORCHTAP_TEST_COUNTS_ALLOCATIONS != 0; },
                                                "a sanitizer has its own allocator")) {
  for (const Way& way : ways()) {
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong}) {
      const at::Tensor x = sample(1, 100, type, 1);
      std::vector<Any> all = reductions_of(way, type);
      all.push_back(Series(Moments(way(MomentsOptions())), Min(way(MinOptions())), Max(way(MaxOptions())),
                           Count(way(CountOptions()))));
      for (Any& one : all) {
        one.update(x);
        one.update(x);
        const auto before = allocations.load();
        for (int i = 0; i < 10; ++i) one.update(x);
        const auto after = allocations.load();
        BOOST_TEST(after == before, one.describe() << " of " << c10::toString(type));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(moments_of_order_2) {
  const at::Tensor x = at::randn({50, 30}, at::kDouble) + 4;
  Moments two(MomentsOptions().order(2).over({0})), four(MomentsOptions().over({0}));
  for (const auto& part : x.split(7)) {
    two.update(part);
    four.update(part);
  }
  BOOST_TEST(close(two.mean(), x.mean(0), 1e-12));
  BOOST_TEST(close(two.variance(), x.var(0), 1e-12));
  BOOST_TEST(two.results().names() == (std::vector<std::string>{"mean", "variance"}),
             boost::test_tools::per_element());
  BOOST_TEST(two.describe() == "Moments(order=2, over=[0])");
  BOOST_CHECK_THROW(two.skewness(), c10::ValueError);
  BOOST_CHECK_THROW(two.kurtosis(), c10::ValueError);
  BOOST_CHECK_THROW(two.merge(four), c10::ValueError);
  BOOST_CHECK_THROW(Moments(MomentsOptions().order(3)), c10::ValueError);
  Any again = reloaded(two);
  again.merge(two);
  BOOST_TEST(again.count() == 100);
  BOOST_TEST(close(again.results().at("mean"), x.mean(0), 1e-12));
  BOOST_TEST(again.fresh().describe() == two.describe());
  Moments complex(MomentsOptions().order(2));
  const at::Tensor z = at::complex(x, x.flip(0));
  for (const auto& row : z.unbind(0)) complex.update(row);
  BOOST_TEST(close(complex.variance(), x.var(0) + x.flip(0).var(0), 1e-12));
}

BOOST_AUTO_TEST_SUITE_END()
