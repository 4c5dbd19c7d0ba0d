// Which rules are on, with which thresholds, and the file that says so.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include <torchtap/rules/rules.hpp>

#include "tests/support.hpp"

namespace {

using torchtap::rules::catalogue;
using torchtap::rules::check;
using torchtap::rules::Rules;
using torchtap_test::error_of;
using torchtap_test::says;

std::string error_in(const std::string& text) {
  return error_of([&] { Rules::parse(text, "rules.txt"); });
}

/// Checks the whole message.
void is_wrong(const std::string& text, const std::string& message) {
  BOOST_TEST_CONTEXT(text) {
    BOOST_TEST(error_in(text) == "rules::Rules: rules.txt:" + message);
  }
}

BOOST_AUTO_TEST_SUITE(rules_settings)

BOOST_AUTO_TEST_CASE(every_rule_and_threshold_can_be_set_by_a_file_and_written_to_one) {
  const Rules standard;
  Rules set;
  std::string text, in_section = "[a.*  (model)]\n";
  for (const auto& info : catalogue()) {
    BOOST_TEST(standard.is_on(info.name, "x") == info.on);
    text += info.name + (info.on ? " = off\n" : "\t=on \n");
    in_section += info.name + " = " + (info.on ? "on" : "off") + "\n";
    set.set(info.name, !info.on);
    for (const auto& [key, value] : info.keys) {
      BOOST_TEST(standard.value(info.name, key, "x") == value);
      const std::string other = info.name == "update_ratio" || key == "steps" ? "1" : "1.0";
      if (info.name == "drift") continue;
      text += info.name + "." + key + " = " + other + "   # why\n";
      set.set(info.name, key, 1);
    }
  }
  const Rules read = Rules::parse(text), both = Rules::parse(text + in_section);
  for (const auto& info : catalogue()) {
    BOOST_TEST(read.is_on(info.name, "x") == !info.on);
    BOOST_TEST(both.is_on(info.name, "x") == !info.on);
    BOOST_TEST(both.is_on(info.name, "a.b") == info.on);
    BOOST_TEST(both.is_on(info.name, "") == info.on);
    for (const auto& [key, value] : info.keys) {
      if (info.name != "drift") BOOST_TEST(read.value(info.name, key, "x") == 1);
    }
  }
  BOOST_TEST(read.text() == set.text());
  for (const Rules* rules : {&read, &both}) BOOST_TEST(Rules::parse(rules->text()).text() == rules->text());
  BOOST_TEST(standard.text() == "");
  BOOST_TEST(Rules::parse("drift.false_alarms = 1e-7\ndrift.size=0.1").value("drift", "false_alarms", "") ==
             1e-7);
  BOOST_TEST(Rules::parse("tensor_variance.max = inf").value("tensor_variance", "max", "") ==
             std::numeric_limits<double>::infinity());
}

BOOST_AUTO_TEST_CASE(later_settings_win_and_text_has_what_differs) {
  Rules rules;
  rules.set("dead_relu", "zeros", 0.5, {"a*"})
      .set("dead_relu", "zeros", 0.6, {"ab", "c"})
      .set("dead_relu", false, {""});
  BOOST_TEST(rules.value("dead_relu", "zeros", "a") == 0.5);
  BOOST_TEST(rules.value("dead_relu", "zeros", "ab") == 0.6);
  BOOST_TEST(rules.value("dead_relu", "zeros", "c") == 0.6);
  BOOST_TEST(rules.value("dead_relu", "zeros", "d") == 0.99);
  BOOST_TEST(!rules.is_on("dead_relu", ""));
  BOOST_TEST(rules.is_on("dead_relu", "a"));
  BOOST_TEST(rules.text() ==
             "[a*]\ndead_relu.zeros = 0.5\n[ab  c]\ndead_relu.zeros = 0.6\n[(model)]\ndead_relu = off\n");
  rules.set("saturated", "share", 0.1);
  BOOST_TEST(Rules::parse(rules.text()).value("saturated", "share", "q") == 0.1);
  BOOST_TEST(rules.text().find("[*]\nsaturated.share = 0.1\n") != std::string::npos);
  rules.set("dead_relu", "zeros", 0.99).set("dead_relu", true).set("saturated", "share", 0.9);
  BOOST_TEST(rules.text() == "");
  BOOST_TEST(rules.value("dead_relu", "zeros", "ab") == 0.99);
  // A number in a file is the same number again.
  BOOST_TEST(
      Rules::parse(Rules().set("saturated", "share", 0.1 + 0.2).text()).value("saturated", "share", "") ==
      0.1 + 0.2);

  torchtap::rules::Facts facts;
  facts.path = "a";
  facts.type = "ReLU";
  facts.count = 10;
  facts.zeros = 6;
  BOOST_TEST(check({facts}).empty());
  const Rules strict = Rules::parse("[a]\r\ndead_relu.zeros = 0.6\r\n");
  BOOST_TEST(check({facts}, strict).size() == 1U);
  facts.path = "b";
  BOOST_TEST(check({facts}, strict).empty());
}

BOOST_AUTO_TEST_CASE(a_program_gets_the_same_errors) {
  Rules rules;
  BOOST_CHECK_EXCEPTION(rules.set("dead_rleu", false), c10::ValueError,
                        says({"Rules::set", "\"dead_rleu\"", "\"dead_relu\""}));
  BOOST_CHECK_EXCEPTION(rules.set("dead_relu", "zero", 1), c10::ValueError, says({"\"zero\"", "\"zeros\""}));
  BOOST_CHECK_EXCEPTION(rules.set("dead_relu", "zeros", 1.5), c10::ValueError,
                        says({"dead_relu.zeros", "from 0 to 1", "1.5"}));
  BOOST_CHECK_EXCEPTION(rules.set("dead_relu", "zeros", NAN), c10::ValueError, says({"nan"}));
  BOOST_CHECK_EXCEPTION(rules.set("dead_relu", false, {"a b"}), c10::ValueError, says({"\"a b\"", "blank"}));
  BOOST_CHECK_EXCEPTION(rules.is_on("x", ""), c10::ValueError, says({"Rules::is_on", "\"x\""}));
  BOOST_CHECK_EXCEPTION(rules.value("nonfinite", "x", ""), c10::ValueError,
                        says({"\"nonfinite\" has no thresholds"}));
  BOOST_TEST(rules.text() == "");
}

BOOST_AUTO_TEST_CASE(errors_in_a_file_name_line_column_and_the_nearest_name) {
  is_wrong("\n  dead_rleu = off", "2:3: there is no rule \"dead_rleu\"; the nearest is \"dead_relu\".");
  is_wrong("dead_relu.zreos = 1",
           "1:11: the rule \"dead_relu\" has no threshold \"zreos\"; the nearest is \"zeros\".");
  is_wrong("dead_relu.=1", "1:11: the rule \"dead_relu\" has no threshold \"\"; the nearest is \"zeros\".");
  is_wrong("nonfinite.x = 1", "1:11: the rule \"nonfinite\" has no thresholds; it is on or off.");
  is_wrong("dead_relu = yes", "1:13: expected on or off, not \"yes\".");
  is_wrong("dead_relu =", "1:12: expected on or off, not \"\".");
  for (const std::string bad : {"0.9x", "1e999", "0x1", "+1", "0,9", "--1", "on", "."})
    is_wrong("\tdead_relu.zeros = " + bad, "1:20: expected a number, not \"" + bad + "\".");
  is_wrong("dead_relu.zeros = ", "1:18: expected a number, not \"\".");
  is_wrong("dead_relu.zeros = 1.5", "1:19: dead_relu.zeros is a number from 0 to 1, not 1.5.");
  is_wrong("scale_outlier.times = nan", "1:23: scale_outlier.times is a number of at least 1, not nan.");
  is_wrong("update_ratio.steps = 0", "1:22: update_ratio.steps is a whole number from 1 to 1e+06, not 0.");
  is_wrong("unchanged_tensor.steps = 1.5",
           "1:26: unchanged_tensor.steps is a whole number from 1 to 1e+06, not 1.5.");
  is_wrong("dead_relu", "1:1: expected RULE = on, RULE = off, RULE.THRESHOLD = NUMBER or [GLOBS].");
  is_wrong("a\r\n", "1:1: expected RULE = on, RULE = off, RULE.THRESHOLD = NUMBER or [GLOBS].");
  is_wrong(" = on", "1:2: expected RULE = on, RULE = off, RULE.THRESHOLD = NUMBER or [GLOBS].");
  is_wrong("dead_relu = on\r\n\r\ndead_relu = off", "3:1: \"dead_relu\" is set twice in this section.");
  is_wrong("[a]\ndead_relu.zeros = 1\ndead_relu.zeros = 1",
           "3:1: \"dead_relu.zeros\" is set twice in this section.");
  is_wrong("[a", "1:3: expected ].");
  is_wrong("[a] b", "1:6: expected ].");
  is_wrong("[ ]", "1:2: expected globs of paths; [*] is all modules.");
  // Columns count characters.
  is_wrong("[ä*]\n[ö ü  # ]", "2:5: expected ].");
}

BOOST_AUTO_TEST_CASE(files_of_other_systems_and_of_odd_content_are_read_or_refused) {
  const Rules windows = Rules::parse("\xef\xbb\xbf# note\r\n[layer4.*\thead]\r\n  dead_relu = off \r\n\r\n");
  BOOST_TEST(!windows.is_on("dead_relu", "layer4.1.relu"));
  BOOST_TEST(!windows.is_on("dead_relu", "head"));
  BOOST_TEST(windows.is_on("dead_relu", "heads"));
  for (const std::string text : {"", "\n", "# nothing", "\r\n\r\n", "\xef\xbb\xbf", "   \t"})
    BOOST_TEST(Rules::parse(text).text() == "");
  const Rules globs = Rules::parse("[[ab].?  *[[:digit:]]]\ndead_relu=off");
  BOOST_TEST(!globs.is_on("dead_relu", "a.x"));
  BOOST_TEST(!globs.is_on("dead_relu", "layer9"));
  BOOST_TEST(globs.is_on("dead_relu", "c.x"));
  // The same section twice, and the same setting in another section, are no duplicates.
  BOOST_TEST(Rules::parse("[a]\ndead_relu = off\n[b]\n[a]\ndead_relu = on").is_on("dead_relu", "a"));

  is_wrong("# ok\n# \xff", "2:3: this is not UTF-8.");
  for (const std::string bad : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82",
                                "\xf5\x80\x80\x80", "\x80", "\xe0\x80\x80"})
    is_wrong(bad, "1:1: this is not UTF-8.");
  BOOST_TEST(error_in("# \xf0\x9f\x94\xa5 \xe2\x82\xac \xc3\xa4") == "");
  const std::string zero("dead_relu = on\0", 15);
  BOOST_TEST(error_in(zero).find("1:13: expected on or off") != std::string::npos);
  BOOST_TEST(error_in(std::string(10 << 20, '#')).find("at most 1 MiB") != std::string::npos);
  BOOST_TEST(Rules::parse(std::string(1 << 20, '#')).text() == "");
}

BOOST_AUTO_TEST_CASE(a_rate_of_false_alarms_that_drift_refuses_is_refused_here) {
  BOOST_CHECK_NO_THROW(Rules::parse("drift.false_alarms = 0.01"));
  BOOST_CHECK_EXCEPTION(Rules::parse("drift.false_alarms = 0.05", "rules.txt"), c10::ValueError,
                        [](const c10::ValueError& error) {
                          return std::string(error.what()).find("rules.txt") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(a_file_is_loaded_by_its_name) {
  const torchtap_test::TemporaryDirectory folder;
  std::ofstream(folder / "rules.txt") << "dead_relu.zeros = 0.999\n";
  BOOST_TEST(Rules::load(folder / "rules.txt").value("dead_relu", "zeros", "") == 0.999);
  std::ofstream(folder / "bad.txt") << "dead_rleu = on";
  BOOST_CHECK_EXCEPTION(Rules::load(folder / "bad.txt"), c10::ValueError,
                        says({folder / "bad.txt:1:1", "dead_relu"}));
  BOOST_CHECK_EXCEPTION(Rules::load(folder / "none"), c10::Error,
                        says({"Rules::load", folder / "none", "No such file"}));
  BOOST_CHECK_EXCEPTION(Rules::load(folder.path()), c10::Error, says({folder.path(), "directory"}));
  std::ofstream(folder / "large") << std::string(10 << 20, '\n');
  BOOST_CHECK_EXCEPTION(Rules::load(folder / "large"), c10::ValueError, says({folder / "large", "1 MiB"}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
