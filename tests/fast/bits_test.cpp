// Tests the loops that count numbers by their bits against LibTorch's operations and the ends of the bins,
// for all types, sizes and alignments, denormal numbers and all non-finite values.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <torchtap/reductions/fast/bits.hpp>

#include "tests/only_where.hpp"

BOOST_AUTO_TEST_SUITE(bits_test)

using namespace torchtap::reductions::detail;
namespace bdata = boost::unit_test::data;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const at::ScalarType kFloats[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
const at::ScalarType kIntegers[] = {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool};

/// Numbers with these bits, in the type.
at::Tensor with_bits(at::ScalarType type, const std::vector<std::uint64_t>& bits) {
  at::Tensor result = at::empty({static_cast<std::int64_t>(bits.size())}, type);
  for (std::size_t i = 0; i < bits.size(); ++i)  // little-endian
    std::memcpy(static_cast<char*>(result.data_ptr()) + i * result.element_size(), &bits[i],
                result.element_size());
  return result;
}

/// The ends of the finite bins' magnitudes, [bins + 1]: equal steps below 2^-126 and in every octave above.
at::Tensor edges(int mantissa_bits) {
  const std::int64_t steps = std::int64_t{1} << mantissa_bits;
  const at::Tensor inside = at::arange(steps, at::kDouble) / steps;
  std::vector<at::Tensor> all{inside * std::ldexp(1.0, -126)};
  for (int exponent = -126; exponent < 128; ++exponent)
    all.push_back((inside + 1) * std::ldexp(1.0, exponent));
  all.push_back(at::full({1}, std::ldexp(1.0, 128), at::kDouble));
  return at::cat(all);
}

/// The slots, by comparison with the ends of all bins.
at::Tensor slots_of(const at::Tensor& x, BitBins bins) {
  const at::Tensor wide = x.to(at::kDouble), magnitude = wide.abs();
  const at::Tensor ends = edges(bins.mantissa_bits);
  const std::int64_t finite = ends.numel() - 1;
  at::Tensor slots =
      (at::bucketize(magnitude, ends, /*out_int32=*/false, /*right=*/true) - 1).clamp_(0, finite - 1);
  slots.masked_fill_(magnitude == kInfinity, finite);
  slots += (wide < 0).to(at::kLong) * (256 << bins.mantissa_bits);
  slots.masked_fill_(wide.isnan(), 512 << bins.mantissa_bits);
  return slots.masked_fill_(magnitude == 0, (512 << bins.mantissa_bits) + 1);
}

/// Ordinary numbers, ends of bins and their neighbours, denormal numbers and all special values, in random
/// order.
at::Tensor numbers(at::ScalarType type, int mantissa_bits) {
  if (!at::isFloatingType(type)) {
    at::Tensor all =
        at::cat({at::randint(-300, 300, {2000}, at::kLong), at::zeros({500}, at::kLong),
                 at::randint(-(std::int64_t{1} << 62), std::int64_t{1} << 62, {500}, at::kLong)});
    return all.index({at::randperm(all.numel())}).to(type);
  }
  const at::Tensor ends = edges(mantissa_bits);
  const at::Tensor some = ends.index({at::randint(ends.numel(), {600}, at::kLong)});
  const at::Tensor narrow = some.to(at::kFloat), up = at::full({}, kInfinity, at::kFloat);
  const at::Tensor special =
      at::tensor({kNaN, kInfinity, -kInfinity, 0.0, -0.0, 1e300, -1e300, 5e-324, -5e-324, 1e-310, 3.4e38,
                  -3.4e38, 1e-45, -1e-45, 1e-38, 65504.0, 6e-8, -6e-8, 6.1e-5},
                 at::kDouble);
  const at::Tensor all =
      at::cat({at::randn({3000}, at::kDouble), at::randn({500}, at::kDouble) * 1e-5,
               at::randn({500}, at::kDouble) * 1e-39, at::pow(2.0, at::rand({1000}, at::kDouble) * 300 - 160),
               some, -some, at::nextafter(some, up.to(at::kDouble)), at::nextafter(some, -up.to(at::kDouble)),
               at::nextafter(narrow, up).to(at::kDouble), -at::nextafter(narrow, -up).to(at::kDouble),
               special.repeat({20}), at::zeros({1000}, at::kDouble)});
  // Signalling NaN, and those whose bits are next to those of the infinities and of zero.
  const at::Tensor odd =
      type == at::kDouble
          ? with_bits(type, {0x7FF0000000000001, 0xFFF0000000000001, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
      : type == at::kFloat ? with_bits(type, {0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF})
      : type == at::kHalf  ? with_bits(type, {0x7C01, 0xFC01, 0x7FFF, 0xFFFF})
                           : with_bits(type, {0x7F81, 0xFF81, 0x7FFF, 0xFFFF});
  const at::Tensor mixed = at::cat({all.to(type), odd.repeat({10})});
  return mixed.index({at::randperm(mixed.numel())});
}

/// Counts part of `x` into slots that already have counts, and finds the slots of each.
void check_part(BitBins bins, const at::Tensor& x, const at::Tensor& slots, std::int64_t from,
                std::int64_t n) {
  const char* const data = static_cast<const char*>(x.data_ptr()) + from * x.element_size();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(bins.slots()), 5);
  bit_kernels().count(x.scalar_type(), data, static_cast<std::size_t>(n), bins, counts.data());
  const at::Tensor part = slots.narrow(0, from, n);
  const at::Tensor want = at::bincount(part, {}, bins.slots()).add_(5);
  BOOST_TEST(at::tensor(counts).equal(want), x.toString() << ", " << bins.mantissa_bits << " bits, " << n
                                                          << " numbers from the " << from << "th");
  std::vector<std::uint32_t> found(static_cast<std::size_t>(n) + 1, 77);
  bit_kernels().find(x.scalar_type(), data, static_cast<std::size_t>(n), bins, found.data());
  BOOST_TEST(found.back() == 77u);
  found.pop_back();
  const at::Tensor all = at::tensor(std::vector<std::int64_t>(found.begin(), found.end()), at::kLong);
  BOOST_TEST(all.equal(part), x.toString() << ", " << bins.mantissa_bits << " bits");
}

}  // namespace

BOOST_DATA_TEST_CASE(every_number_is_counted_where_it_belongs, bdata::xrange(0, 8), mantissa_bits) {
  at::manual_seed(static_cast<std::uint64_t>(mantissa_bits));
  std::mt19937 random(static_cast<unsigned>(mantissa_bits));
  const BitBins bins{mantissa_bits};
  std::vector<at::ScalarType> types(std::begin(kFloats), std::end(kFloats));
  types.insert(types.end(), std::begin(kIntegers), std::end(kIntegers));
  for (const auto type : types) {
    BOOST_TEST(has_bits(type));
    const at::Tensor x = numbers(type, mantissa_bits), slots = slots_of(x, bins);
    check_part(bins, x, slots, 0, x.numel());
    for (int part = 0; part < 20; ++part) {
      const std::int64_t n = random() % (part < 15 ? 300 : x.numel() + 1),
                         from = random() % (x.numel() - n + 1);
      check_part(bins, x, slots, from, n);
    }
  }
  BOOST_TEST(!has_bits(at::kComplexFloat));
  const at::Tensor ends = edges(mantissa_bits);
  for (std::int64_t i = 0; i < ends.numel(); ++i) BOOST_TEST(bins.edge(i) == ends[i].item<double>());
}

BOOST_AUTO_TEST_CASE(slots_are_the_upper_bits_of_float32) {
  at::manual_seed(3);
  for (const int mantissa_bits : {0, 3, 7}) {
    const BitBins bins{mantissa_bits};
    at::Tensor bits = at::randint(std::numeric_limits<std::int32_t>::min(),
                                  std::numeric_limits<std::int32_t>::max(), {100000}, at::kInt);
    at::Tensor x = bits.view(at::kFloat);
    const at::Tensor ordinary = x.isfinite().logical_and(x != 0);
    bits = bits.index({ordinary});
    x = bits.view(at::kFloat);
    const at::Tensor want =
        at::bitwise_and(at::bitwise_right_shift(bits, 23 - mantissa_bits), (512 << mantissa_bits) - 1)
            .to(at::kLong);
    std::vector<std::int64_t> counts(static_cast<std::size_t>(bins.slots()));
    bit_kernels().count(at::kFloat, x.data_ptr(), static_cast<std::size_t>(x.numel()), bins, counts.data());
    BOOST_TEST(at::tensor(counts).equal(at::bincount(want, {}, bins.slots())));
  }
}

BOOST_AUTO_TEST_CASE(all_numbers_of_16_bits) {
  const BitBins bins{3};
  std::vector<std::uint64_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = i;
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor x = with_bits(type, bits);
    check_part(bins, x, slots_of(x, bins), 0, x.numel());
  }
}

BOOST_AUTO_TEST_CASE(long_stretches) {
  at::manual_seed(4);
  // More than the loops count at a time, and all in one slot.
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt}) {
    for (const int mantissa_bits : {3, 5}) {
      const BitBins bins{mantissa_bits};
      for (const at::Tensor& x : {at::randn({200003}).to(type), at::zeros({200003}, type),
                                  at::ones({200003}, type), at::relu(at::randn({200003})).to(type)}) {
        const at::Tensor slots = slots_of(x, bins);
        check_part(bins, x, slots, 0, x.numel());
        check_part(bins, x, slots, 1, 70001);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(denormal_numbers_that_the_processor_takes_for_zeros,
                     *torchtap_test::only_where([] { return at::globalContext().setFlushDenormal(false); },
                                                "the processor cannot")) {
  at::globalContext().setFlushDenormal(true);
  const BitBins bins{3};
  std::vector<std::int64_t> counts(static_cast<std::size_t>(bins.slots()));
  const at::Tensor x = with_bits(at::kFloat, std::vector<std::uint64_t>(40, 1));
  bit_kernels().count(at::kFloat, x.data_ptr(), 40, bins, counts.data());
  const at::Tensor half = with_bits(at::kHalf, std::vector<std::uint64_t>(40, 1));
  bit_kernels().count(at::kHalf, half.data_ptr(), 40, bins, counts.data());
  const at::Tensor wide = with_bits(at::kDouble, std::vector<std::uint64_t>(40, 1));
  bit_kernels().count(at::kDouble, wide.data_ptr(), 40, bins, counts.data());
  at::globalContext().setFlushDenormal(false);
  BOOST_TEST(counts[static_cast<std::size_t>(bins.zero())] == 0);
  BOOST_TEST(counts[0] == 80);
  BOOST_TEST(counts[(127 - 24) << 3] == 40);  // 2^-24
}

BOOST_AUTO_TEST_SUITE_END()
