// Globs: the rules, and patterns made to take long.
#include <boost/test/unit_test.hpp>
#include <fnmatch.h>

#include <string>
#include <vector>

#include <torchtap/base/glob.hpp>

using namespace torchtap;

BOOST_AUTO_TEST_CASE(globs_match) {
  using base::matches_glob;
  BOOST_TEST(matches_glob("layer*", "layer1.0.conv"));
  BOOST_TEST(matches_glob("*", ""));
  BOOST_TEST(matches_glob("", ""));
  BOOST_TEST(!matches_glob("", "a"));
  BOOST_TEST(matches_glob("*.conv?", "layer1.conv2"));
  BOOST_TEST(!matches_glob("*.conv?", "layer1.conv"));
  BOOST_TEST(matches_glob("layer[1-3].*", "layer2.0"));
  BOOST_TEST(!matches_glob("layer[!1-3].*", "layer2.0"));
  BOOST_TEST(matches_glob("a[]]", "a]"));
  BOOST_TEST(matches_glob("a[", "a["));
  BOOST_TEST(matches_glob("\\*", "*"));
  BOOST_TEST(!matches_glob("\\*", "a"));
  BOOST_TEST(matches_glob("a*b*c", "a.b.b.c"));
  std::string stars;
  for (int i = 0; i < 1000; ++i) stars += "*a";
  BOOST_TEST(!matches_glob(stars + "b", std::string(4000, 'a')));  // not in exponential time
}

BOOST_AUTO_TEST_CASE(globs_match_as_in_the_shell) {
  const std::vector<std::string> globs{"*",       "a.*",   "?.b",   "[a-c].?",      "[!a-c]*",
                                       "[^a-c]*", "[]a]*", "[a-]*", "[[:digit:]]*", "*[![:alpha:]]",
                                       "[\\]]*",  "\\[*",  "**b",   "*.*.*"};
  const std::vector<std::string> texts{"",  "a",  "a.b", "b.b.b", "d",     "-",
                                       "]", "[x", "1",   "\\",    "x/y.b", "\xc3\xa9"};
  for (const auto& glob : globs) {
    for (const auto& text : texts) {
      BOOST_TEST_CONTEXT(glob << " and " << text)
      BOOST_TEST(base::matches_glob(glob, text) == (::fnmatch(glob.c_str(), text.c_str(), 0) == 0));
    }
  }
}
