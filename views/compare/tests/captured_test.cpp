// While a graph is captured no tensor is read, which would end the program's capture.
#include <torchtap/base/capture.hpp>
#include <torchtap/views/compare/fingerprint.hpp>

#include "tests/fake_device/fake_device.hpp"
#include "tests/support.hpp"

using namespace torchtap_test;

BOOST_AUTO_TEST_SUITE(compare_captured)

BOOST_AUTO_TEST_CASE(a_fingerprint_in_a_capture_is_an_error_before_anything_is_copied) {
  torchtap::base::set_capturing(
      [](const c10::Device& device) { return !device.is_cpu() && fake::capture(device.index()) != 0; });
  const at::Tensor here = at::randn({4, 3}), there = fake::on_device(here);
  fake::begin_capture();
  BOOST_CHECK_EXCEPTION((void)torchtap::views::compare::fingerprint(there), c10::Error,
                        says({"fingerprint", "captures a graph"}));
  BOOST_TEST(fake::end_capture().jobs.empty());
  BOOST_TEST(
      same_bits(torchtap::views::compare::fingerprint(there), torchtap::views::compare::fingerprint(here)));
  torchtap::base::set_capturing(nullptr);
}

BOOST_AUTO_TEST_SUITE_END()
