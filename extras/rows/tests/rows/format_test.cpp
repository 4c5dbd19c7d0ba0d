// The dump of tests/formats/1/, which every later version has to read.
#include <array>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(format)

using namespace rows_test;

BOOST_AUTO_TEST_CASE(a_dump_of_format_1_is_read) {
  const auto recording = load(TORCHTAP_TEST_FORMATS "/1/dump");
  for (const char* path : {"first", "twice"}) {
    const Rows rows(recording.at(path));
    const std::int64_t calls = std::string(path) == "twice" ? 2 : 1;
    BOOST_TEST(rows.size() == 20 * calls);  // without those of no call
    const at::Tensor id = rows.beside("id");
    BOOST_TEST(id.equal(numbers_of(rows.slice(0, rows.size()))));
    BOOST_TEST(id.remainder(3).ne(1).all().item<bool>());
    BOOST_TEST(rows.beside("label").equal(
        id.floor_divide(3).mul(3).where(id.lt(100), (id - 100).floor_divide(3) * 3 + 100).remainder(10)));
    const auto names = tap::rows::strings(rows.beside("name"));
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      const std::int64_t number = id[i].item<std::int64_t>() % 100;
      BOOST_TEST(rows.where(i).place == number % 6);
      BOOST_TEST(rows.where(i).forward == number / 6);
      BOOST_TEST(names[static_cast<std::size_t>(i)] == (number % 6 < 3 ? "größe" : "b"));
    }
    BOOST_TEST(rows.where(0).run != rows.where(-1).run);
  }
}

BOOST_AUTO_TEST_SUITE_END()
