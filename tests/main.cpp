#define BOOST_TEST_MODULE torchtap
#include <boost/test/unit_test.hpp>

#include <clocale>
#include <cstdlib>
#include <locale>
#include <string>

namespace {

/// Numbers as in German: "1.234,5".
struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// The user's locale, which a program sets with `std::locale::global` and `setlocale`: TORCHTAP_TEST_COMMA is
/// its name. Where C has no such locale, streams have it.
struct UsersLocale {
  UsersLocale() {
    const char* const name = std::getenv("TORCHTAP_TEST_COMMA");
    if (name == nullptr) return;
    std::locale::global(std::locale(std::locale::classic(), new Comma));
    if (std::setlocale(LC_NUMERIC, name) == nullptr)
      BOOST_TEST_MESSAGE("C has no locale " << name << ": only streams have a decimal comma");
  }
};

}  // namespace

BOOST_TEST_GLOBAL_FIXTURE(UsersLocale);
