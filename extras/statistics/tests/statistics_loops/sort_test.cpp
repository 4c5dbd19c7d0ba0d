// Tests that sorting is that of ATen, for all sizes and instruction sets, infinities and NaN.

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
#include <torchtap/statistics/detail/halve_columns.hpp>
#include <torchtap/statistics/detail/sort.hpp>

BOOST_AUTO_TEST_SUITE(sorting_tests)

using namespace torchtap::statistics::detail;
using torchtap::reductions::detail::instruction_sets;
using torchtap::reductions::detail::use_instruction_sets;
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

BOOST_AUTO_TEST_CASE(columns_are_sorted_with_infinities_and_nan_in_their_place) {
  at::manual_seed(6);
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const std::int64_t rows : {2, 8, 16, 22, 130}) {
      for (const std::int64_t width : {1, 7, 8, 16, 31, 33, 100}) {
        // Of each: NaN of either sign, infinities, both zeros and equal numbers.
        at::Tensor x = at::randn({rows, width + 3}, type).mul_(4).round_();
        x.masked_fill_(x.eq(2), kNaN).masked_fill_(x.eq(3), kInfinity).masked_fill_(x.eq(-3), -kInfinity);
        const at::Tensor some = x.narrow(1, 0, width), sorted = std::get<0>(some.sort(0));
        with_all_instruction_sets([&] {
          for (const std::uint64_t odd :
               {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0x5a5a0f0f1234567}}) {
            at::Tensor got = at::full({rows / 2, width + 3}, 77, type);
            std::vector<char> scratch(static_cast<std::size_t>(rows) * kSortedBytes);
            halve_by_network(type, x.data_ptr(), static_cast<std::size_t>(rows),
                             static_cast<std::size_t>(width), static_cast<std::size_t>(width + 3), odd,
                             got.data_ptr(), scratch.data());
            for (std::int64_t i = 0; i < width; ++i) {
              const at::Tensor want = sorted.select(1, i).slice(0, (odd >> i % 64) & 1, rows, 2);
              BOOST_TEST(at::allclose(got.select(1, i), want, 0, 0, /*equal_nan=*/true),
                         type << ' ' << rows << ' ' << width << ", column " << i);
            }
            BOOST_TEST(got.narrow(1, width, 3).eq(77).all().item<bool>());
          }
        });
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE(sort)

namespace {

template <class T>
void check_sorted(const at::Tensor& x) {
  Sorter<T> sorter;
  for (const std::int64_t n : {0, 1, 2, 15, 16, 17, 255, 1000, 16384, 65536, 70000}) {
    const at::Tensor part = x.narrow(0, x.numel() - n, n);
    const auto* keys = sorter(part.data_ptr<T>(), static_cast<std::size_t>(n));
    std::vector<T> sorted(static_cast<std::size_t>(n));
    std::transform(keys, keys + n, sorted.begin(), sorter.number);
    const at::Tensor want = std::get<0>(part.sort());
    bool same = true;
    for (std::int64_t i = 0; i < n; ++i) {
      const T a = sorted[static_cast<std::size_t>(i)], b = want.data_ptr<T>()[i];
      same = same && (a == b || (std::isnan(a) && std::isnan(b)));
    }
    BOOST_TEST(same, x.toString() << ", " << n << " numbers");
    // Zeros keep their signs.
    const auto negative = [](const T* from, std::int64_t count) {
      return std::count_if(from, from + count, [](T one) { return one == 0 && std::signbit(one); });
    };
    BOOST_TEST(negative(sorted.data(), n) == negative(part.data_ptr<T>(), n));
  }
}

template <class Key>
void check_radix() {
  std::mt19937_64 random(0);
  for (const std::size_t n : {0, 1, 2, 100, 70000}) {
    for (const Key most : {Key{0}, Key{50}, std::numeric_limits<Key>::max()}) {
      std::vector<Key> keys(n), other;
      for (auto& key : keys) key = most == 0 ? 7 : static_cast<Key>(random()) % most;
      std::vector<Key> want = keys;
      std::sort(want.begin(), want.end());
      radix_sort(keys, other);
      BOOST_TEST((keys == want), n << " keys below " << most);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(numbers_ascend_and_nan_comes_last) {
  at::manual_seed(0);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor normal = at::randn({70000}, type);
    at::Tensor odd = normal.clone();
    const at::Tensor special = at::cat(
        {at::tensor({kNaN, -kNaN, kInfinity, -kInfinity, 0.0, -0.0}, type), odd_nan(type), -odd_nan(type)});
    for (std::int64_t i = 0; i < special.numel(); ++i) odd.slice(0, i, odd.numel(), 11).copy_(special[i]);
    for (const auto& x :
         {normal, odd, (normal * 3).round(), at::arange(70000, type), -at::arange(70000, type),
          at::full({70000}, 1.5, type), at::full({70000}, kNaN, type)}) {
      type == at::kFloat ? check_sorted<float>(x) : check_sorted<double>(x);
    }
  }
}

BOOST_AUTO_TEST_CASE(radix_sort_is_a_sort) {
  check_radix<std::uint32_t>();
  check_radix<std::uint64_t>();
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
