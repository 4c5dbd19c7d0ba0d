// JSON as all parts write and read it.
#include <boost/test/unit_test.hpp>
#include <c10/util/Exception.h>

#include <cstdio>
#include <limits>

#include <torchtap/json/json.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(json_test)

namespace json = torchtap::json;
using json::Json;
using torchtap_test::says;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

BOOST_AUTO_TEST_CASE(numbers_are_exact_and_those_that_json_lacks_are_texts) {
  const std::vector<double> numbers{
      0.1, 1.0, -0.0, 1e300, std::numeric_limits<double>::denorm_min(), std::nan(""), infinity, -infinity};
  const std::string text =
      json::text({{"doubles", numbers},
                  {"float", std::numeric_limits<float>::infinity()},
                  {"least", std::numeric_limits<std::int64_t>::min()},
                  {"most", std::numeric_limits<std::int64_t>::max()},
                  {"known", std::optional(infinity)},
                  {"unknown", std::optional<double>()},
                  {"pairs", std::vector<std::pair<std::int64_t, double>>{{1, infinity}}}});
  BOOST_TEST(text ==
             R"({"doubles":[0.1,1.0,-0.0,1e+300,5e-324,"NaN","Infinity","-Infinity"],"float":"Infinity",)"
             R"("least":-9223372036854775808,"most":9223372036854775807,"known":"Infinity","unknown":null,)"
             R"("pairs":[[1,"Infinity"]]})");
  const Json document = json::parse(text);
  const json::Reader read(document);
  const auto again = read.get<std::vector<double>>("doubles");
  BOOST_TEST(again.size() == numbers.size());
  BOOST_TEST(std::isnan(again[5]));
  for (const std::size_t i : {0, 1, 2, 3, 4, 6, 7}) BOOST_TEST(again[i] == numbers[i]);
  BOOST_TEST(std::signbit(again[2]));
  BOOST_TEST(read.get<std::int64_t>("least") == std::numeric_limits<std::int64_t>::min());
  BOOST_TEST(read.get<std::int64_t>("most") == std::numeric_limits<std::int64_t>::max());
  BOOST_TEST(json::text(document) == text);
}

BOOST_AUTO_TEST_CASE(text_is_utf8) {
  Json document{{"name", std::string("caf\xc3\xa9 \xff\xc3 \"")}, {"view", std::string_view("\xff")}};
  json::add(document, "bad \x80", 1);
  BOOST_TEST(json::text(document) ==
             "{\"name\":\"caf\xc3\xa9 \\\\377\\\\303 \\\"\",\"view\":\"\\\\377\",\"bad \\\\200\":1}");
  BOOST_CHECK_THROW(json::parse("\"\xff\""), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(keys_keep_their_order_and_lines_are_for_people) {
  const Json document = json::parse(R"({"b": [1, [], {}], "a": [{"z": null}, true]})");
  BOOST_TEST(json::text(document) == R"({"b":[1,[],{}],"a":[{"z":null},true]})");
  BOOST_TEST(json::lines(document) == "{\n \"b\": [1, [], {}],\n \"a\": [{\n  \"z\": null\n }, true]\n}\n");
}

BOOST_AUTO_TEST_CASE(what_is_no_json_is_an_error_that_says_where) {
  const auto fails = [](const std::string& text, const std::string& part) {
    BOOST_CHECK_EXCEPTION(json::parse(text, "f.json: "), c10::ValueError, says({"f.json: it is", part}));
    BOOST_TEST(json::parse_object(text).is_null());
  };
  fails("", "from byte 0 on");
  fails("{\"a\": tru}", "from byte 9 on");
  fails("{} {}", "from byte 3 on");
  fails(std::string("{}\0", 3), "from byte 2 on");
  fails("NaN", "not JSON");
  fails("1e999", "not JSON");
  fails("[1, 2", "not JSON");
  fails(std::string(100000, '['), "nested deeper than");
  for (const char* open : {"{\"a\":", "["}) {
    std::string deep;
    for (int i = 0; i < 3000; ++i) deep += open;
    fails(deep, "nested deeper than");
  }
  BOOST_TEST(json::parse_object("[]").is_null());
  BOOST_TEST(json::parse_object("{}").is_object());
}

BOOST_AUTO_TEST_CASE(a_field_of_another_type_is_an_error_that_names_it) {
  const Json document =
      json::parse(R"({"a": {"list": [1, "x"], "text": 3, "real": 1.5, "big": 18446744073709551615}})");
  const json::Reader whole(document, "f.json: ");
  const json::Reader a = whole.at("a");
  const auto fails = [](const auto& read, const std::string& message) {
    BOOST_CHECK_EXCEPTION(read(), c10::ValueError, says({message}));
  };
  fails([&] { whole.at("b"); }, "f.json: it has no \"b\".");
  fails([&] { a.get<std::int64_t>("none"); }, "f.json: a has no \"none\".");
  fails([&] { a.get<std::string>("text"); }, "f.json: a.text should be a text and is 3.");
  fails([&] { a.get<std::int64_t>("real"); }, "f.json: a.real should be a whole number and is 1.5.");
  fails([&] { a.get<std::int64_t>("big"); }, "f.json: a.big should be a whole number and is 1.844");
  fails([&] { a.get<std::vector<std::int64_t>>("list"); },
        "f.json: a.list[1] should be a whole number and is the text \"x\".");
  fails([&] { a.get<double>("list"); }, "f.json: a.list should be a number and is an array.");
  fails([&] { a.at("list").at("x"); }, "f.json: a.list should be an object and is an array.");
  fails([&] { whole.elements(); }, "f.json: it should be an array and is an object.");
  BOOST_TEST(a.get("text", std::string("otherwise")) == "otherwise");
  BOOST_TEST(a.get("real", std::int64_t{7}) == 7);
  BOOST_TEST(a.get("none", 2.5) == 2.5);
  BOOST_TEST(a.get("text", 2.5) == 3.0);
  BOOST_TEST(a.list("list").size() == 2U);
  BOOST_TEST(a.list("text").empty());
  BOOST_TEST(whole.members().size() == 1U);
}

BOOST_AUTO_TEST_CASE(many_members_are_read_in_linear_time) {
  constexpr int members = 300'000;  // looked for among each other they would take minutes
  std::string text = "{";
  for (int i = 0; i < members; ++i)
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":" + std::to_string(i);
  const Json document = json::parse(text + "}");
  BOOST_TEST(document.size() == static_cast<std::size_t>(members));
  BOOST_TEST(document.back() == members - 1);
}

BOOST_AUTO_TEST_SUITE_END()
