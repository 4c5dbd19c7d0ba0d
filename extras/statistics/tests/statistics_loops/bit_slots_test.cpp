// Tests that ATen's operations, on devices without loops of their own, find the slots that the loops find.

#include <ATen/ATen.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <torchtap/statistics/detail/bit_table.hpp>

BOOST_AUTO_TEST_SUITE(bit_slots_test)

using namespace torchtap;
namespace bdata = boost::unit_test::data;

BOOST_DATA_TEST_CASE(as_the_loops, bdata::xrange(0, 8), mantissa_bits) {
  constexpr double endless = std::numeric_limits<double>::infinity();
  at::manual_seed(static_cast<std::uint64_t>(mantissa_bits));
  const reductions::extend::BitBins bins{mantissa_bits};
  std::vector<double> ends;
  for (std::int64_t i = 0; i <= bins.infinity(); i += 7) ends.push_back(bins.edge(i));
  const at::Tensor some = at::tensor(ends, at::kDouble), up = at::full({}, endless, at::kDouble);
  const at::Tensor special =
      at::tensor({std::nan(""), endless, -endless, 0.0, -0.0, 1e300, -1e300, 5e-324, -5e-324, 1e-310, 3.4e38,
                  1e-45, -1e-45, 1e-38, 65504.0, 6e-8, -6e-8, 6.1e-5},
                 at::kDouble);
  const at::Tensor all =
      at::cat({at::randn({3000}, at::kDouble), at::randn({500}, at::kDouble) * 1e-39,
               at::pow(2.0, at::rand({1000}, at::kDouble) * 300 - 160), some, -some, at::nextafter(some, up),
               at::nextafter(some, -up),
               at::nextafter(some.to(at::kFloat), up.to(at::kFloat)).to(at::kDouble), special});
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                          at::kChar, at::kByte, at::kBool}) {
    const bool whole = c10::isIntegralType(type, /*includeBool=*/true);
    const at::Tensor x =
        whole ? at::randint(-300, 300, {3000}, at::kLong).to(type) : all.to(type).contiguous();
    std::vector<std::uint32_t> found(static_cast<std::size_t>(x.numel()));
    reductions::extend::bit_kernels().find(type, x.data_ptr(), found.size(), bins, found.data());
    const at::Tensor want = at::tensor(std::vector<std::int64_t>(found.begin(), found.end()), at::kLong);
    BOOST_TEST(statistics::detail::bit_slots(x, bins).equal(want), x.toString());
  }
}

BOOST_AUTO_TEST_SUITE_END()
