// Texts that fit a width, that no terminal obeys, and that say the same as the kernel of what is UTF-8.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <limits>
#include <random>
#include <string>

#include <torchtap/base/utf8.hpp>
#include <torchtap/views/text/characters.hpp>
#include <torchtap/views/text/units.hpp>

BOOST_AUTO_TEST_SUITE(text_suite)

using namespace torchtap::views;
namespace bdata = boost::unit_test::data;

namespace {

/// Of narrow, wide and combining characters, control characters, and bytes that are not UTF-8.
std::string random_text(std::mt19937& random) {
  static const std::string parts[] = {"a", "layer", ".",       "卷",   "e\u0301", "\u0301",
                                      "…", "\n",    "\x1b[2J", "\xff", "\xe5\x8d"};
  std::string text;
  for (auto left = random() % 12; left > 0; --left) text += parts[random() % std::size(parts)];
  return text;
}

}  // namespace

BOOST_DATA_TEST_CASE(a_cut_text_fits, bdata::make({false, true}) * bdata::make({false, true}), keeps_end,
                     ascii) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::string whole = text::printable(random_text(random));
    for (std::size_t to = 0; to < 12; ++to) {
      const std::string cut = text::cut(whole, to, keeps_end, ascii);
      BOOST_TEST(text::width_of(cut) <= to, '"' << cut << "\" of \"" << whole << "\" in " << to);
      if (text::width_of(whole) <= to) BOOST_TEST(cut == whole);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_is_printed_moves_no_cursor_and_is_utf8) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    const std::string whole = random_text(random), shown = text::printable(whole);
    BOOST_TEST(shown.find_first_of("\n\x1b\xff") == std::string::npos, shown);
    BOOST_TEST(torchtap::base::first_not_utf8(shown) == std::string::npos);
    BOOST_TEST(text::printable(shown) == shown);
    const std::string valid = torchtap::base::utf8_text(whole);
    BOOST_TEST(torchtap::base::first_not_utf8(valid) == std::string::npos);
    if (torchtap::base::first_not_utf8(whole) == std::string::npos) BOOST_TEST(valid == whole);
  }
}

BOOST_AUTO_TEST_CASE(both_readers_of_utf8_agree) {
  const char ends[] = {'\0', '\x7f', '\x80', '\xbf', '\xc0'};
  int different = 0;
  for (int lead = 0; lead < 256; ++lead) {
    for (int second = 0; second < 256; ++second) {
      for (const char third : ends) {
        for (const char fourth : ends) {
          const std::string bytes{static_cast<char>(lead), static_cast<char>(second), third, fourth};
          const bool valid = text::character_at(bytes, 0).bytes != 0;
          different += valid != (torchtap::base::first_not_utf8(bytes) != 0) ? 1 : 0;
        }
      }
    }
  }
  BOOST_TEST(different == 0);
}

BOOST_AUTO_TEST_CASE(numbers_at_the_ends_of_units) {
  BOOST_TEST(text::bytes_text(999) == "999 B");
  BOOST_TEST(text::bytes_text(999'949) == "999.9 kB");
  BOOST_TEST(text::bytes_text(999'950) == "1.0 MB");
  BOOST_TEST(text::bytes_text(-1500) == "-1.5 kB");
  BOOST_TEST(text::count_text(-100'000) == "-100,000");
  BOOST_TEST(text::count_text(std::numeric_limits<std::int64_t>::min()) == "-9,223,372,036,854,775,808");
  BOOST_TEST(text::csv_text("a\"b,\n") == "\"a\"\"b,\n\"");
}

BOOST_AUTO_TEST_SUITE_END()
