// The words of error messages: lists of names, and which names come near one that does not exist.
#include <boost/test/unit_test.hpp>

#include <random>

#include <torchtap/base/error.hpp>

BOOST_AUTO_TEST_SUITE(error)

using namespace torchtap::base;

namespace {

/// The definition itself, letter by letter.
std::size_t distance_by_definition(const std::string& a, const std::string& b) {
  if (a.empty()) return b.size();
  if (b.empty()) return a.size();
  const std::string a_rest = a.substr(1), b_rest = b.substr(1);
  if (a[0] == b[0]) return distance_by_definition(a_rest, b_rest);
  return 1 + std::min({distance_by_definition(a_rest, b), distance_by_definition(a, b_rest),
                       distance_by_definition(a_rest, b_rest)});
}

using Names = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_CASE(edit_distance_counts_letters) {
  BOOST_TEST(edit_distance("", "") == 0u);
  BOOST_TEST(edit_distance("", "abc") == 3u);
  BOOST_TEST(edit_distance("kitten", "sitting") == 3u);
  BOOST_TEST(edit_distance("Lienar", "Linear") == 2u);  // two letters that changed places
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text(random() % 6, ' ');
    for (auto& letter : text) letter = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 500; ++i) {
    const std::string a = word(), b = word();
    BOOST_TEST(edit_distance(a, b) == distance_by_definition(a, b), a << " and " << b);
    BOOST_TEST(edit_distance(a, b) == edit_distance(b, a), a << " and " << b);
  }
}

BOOST_AUTO_TEST_CASE(nearest_looks_at_the_path_and_at_its_last_part) {
  const Names paths{"layer1.0.conv1", "layer1.0.bn1", "layer2.0.conv1", "fc", "head.classifier"};
  BOOST_TEST(nearest("layer1.0.conv", paths, 2) == (Names{"layer1.0.conv1", "layer2.0.conv1"}),
             boost::test_tools::per_element());
  // The whole of it is far from everything; its last part is not.
  BOOST_TEST(nearest("clasifier", paths, 1) == (Names{"head.classifier"}), boost::test_tools::per_element());
  BOOST_TEST(nearest("model.body.head.classifier", paths, 1) == (Names{"head.classifier"}),
             boost::test_tools::per_element());
  // Of equals the first comes first.
  BOOST_TEST(nearest("x", {"b", "a", "c"}) == (Names{"b", "a", "c"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(nearest_gives_at_most_as_many_as_asked_for) {
  const Names many{"a1", "a2", "a3", "a4", "a5", "a6", "a7"};
  BOOST_TEST(nearest("a", many).size() == 5u);
  BOOST_TEST(nearest("a", many, 100).size() == many.size());
  BOOST_TEST(nearest("a", many, 0).empty());
  BOOST_TEST(nearest("a", {}).empty());
}

BOOST_AUTO_TEST_CASE(quoted_lists_names) {
  BOOST_TEST(quoted({}) == "(none)");
  BOOST_TEST(quoted({""}) == "\"\"");
  BOOST_TEST(quoted({"a"}) == "\"a\"");
  BOOST_TEST(quoted({"a", "b"}) == "\"a\" and \"b\"");
  BOOST_TEST(quoted({"a", "b", "c"}) == "\"a\", \"b\" and \"c\"");
}

BOOST_AUTO_TEST_CASE(the_first_line_is_what_an_error_says) {
  BOOST_TEST(first_line(std::runtime_error("no room\nat 7 places")) == "no room");
  BOOST_TEST(first_line(std::runtime_error("")).empty());
  try {
    TORCH_CHECK_VALUE(false, "no room\nat 7 places");
  } catch (const std::exception& error) {
    BOOST_TEST(first_line(error) == "no room");
  }
}

BOOST_AUTO_TEST_SUITE_END()
