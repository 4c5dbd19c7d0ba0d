// Numbers, sizes, times and types as people read them.
#include <boost/test/unit_test.hpp>

#include <limits>

#include <torchtap/views/text/units.hpp>

BOOST_AUTO_TEST_SUITE(units_test)

using namespace torchtap::views::text;

BOOST_AUTO_TEST_CASE(counts_and_sizes) {
  BOOST_TEST(count_text(999) == "999");
  BOOST_TEST(count_text(-12'800'000) == "-12,800,000");
  BOOST_TEST(counted(1, "module") == "1 module");
  BOOST_TEST(counted(2000, "module") == "2,000 modules");
  BOOST_TEST(amount_text(576) == "576");
  BOOST_TEST(amount_text(999) == "999");
  BOOST_TEST(amount_text(1000) == "1.00 k");
  BOOST_TEST(amount_text(9408) == "9.41 k");
  BOOST_TEST(amount_text(999'499) == "999 k");
  BOOST_TEST(amount_text(999'500) == "1.00 M");
  BOOST_TEST(amount_text(-12'800'000) == "-12.8 M");
  BOOST_TEST(amount_text(std::numeric_limits<std::int64_t>::max()) == "9.22 E");
  BOOST_TEST(bytes_text(999) == "999 B");
  BOOST_TEST(bytes_text(1500) == "1.5 kB");
}

BOOST_AUTO_TEST_CASE(times) {
  BOOST_TEST(duration_text(0) == "0 ns");
  BOOST_TEST(duration_text(31e-6) == "31.0 µs");
  BOOST_TEST(duration_text(31e-6, /*ascii=*/true) == "31.0 us");
  BOOST_TEST(duration_text(0.12) == "120 ms");
  BOOST_TEST(duration_text(9.4) == "9.40 s");
  BOOST_TEST(duration_text(59.94) == "59.9 s");
  BOOST_TEST(duration_text(59.96) == "1 min 0 s");
  BOOST_TEST(duration_text(200) == "3 min 20 s");
  BOOST_TEST(duration_text(3599.6) == "1 h 0 min");
  BOOST_TEST(duration_text(7500) == "2 h 5 min");
  BOOST_TEST(duration_text(std::numeric_limits<double>::infinity()) == "inf");
  BOOST_TEST(utc_text(1'795'449'895'123'999'999) == "2026-11-23T16:04:55.123Z");
  BOOST_TEST(clock_text(1'795'449'895'123'999'999).substr(5) == ":55.123");
}

BOOST_AUTO_TEST_CASE(types) {
  BOOST_TEST(type_text("torch::nn::ReLUImpl") == "ReLU");
  BOOST_TEST(type_text("__torch__.torch.nn.modules.activation.ReLU") == "ReLU");
  BOOST_TEST(type_text("my::Net<torch::nn::LinearImpl>") == "Net");
  BOOST_TEST(type_text("Impl") == "Impl");
  BOOST_TEST(type_text("") == "");
}

BOOST_AUTO_TEST_SUITE_END()
