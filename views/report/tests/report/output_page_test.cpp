// The page: what it is made of. tests/report/page.py opens it in a browser, if there is one.
#include <cstdlib>
#include <regex>

#include "output_support.hpp"
#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(output_page)

using namespace torchtap_test;

namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_file_without_markup_of_the_model) {
  const std::string page = report::html(nasty());
  BOOST_TEST(page.rfind("<!DOCTYPE html>", 0) == 0U);
  BOOST_TEST(count(page, "<script") == 2U);
  BOOST_TEST(count(page, "</script>") == 2U);
  BOOST_TEST(count(page, "<style>") == 1U);
  BOOST_TEST(count(page, "<!--style-->") + count(page, "<!--script-->") + count(page, "<!--data-->") == 0U);
  BOOST_TEST(count(page, "Content-Security-Policy") == 1U);
  // What is in the page is what is in the file.
  const std::string begin = "id=\"data\">";
  const std::size_t at = page.find(begin) + begin.size();
  std::string data = page.substr(at, page.find("</script>", at) - at);
  BOOST_TEST(data.find('<') == std::string::npos);
  BOOST_TEST(report::json(report::from_json(data)) == report::json(nasty()));
}

BOOST_AUTO_TEST_CASE(browser, *boost::unit_test::label("browser")) {
  const TemporaryDirectory place;
  for (const char* extension : {".json", ".html"}) {
    report::save(troubled(), place / (std::string("insight") + extension));
    report::save(nasty(), place / (std::string("nasty") + extension));
  }
  const std::string command =
      std::string(TORCHTAP_TEST_PYTHON) + " " + TORCHTAP_TEST_PAGE + " " + place.path();
  const int status = std::system(command.c_str());
  BOOST_REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    BOOST_TEST_MESSAGE("the page was not opened");
    return;
  }
  BOOST_TEST(WEXITSTATUS(status) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
