// Tests that what is listed can be made and restored by its name.

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>

#include <torchtap/reductions/reductions.hpp>

#include "tests/reductions/support.hpp"

BOOST_AUTO_TEST_SUITE(catalogues)

using namespace torchtap;
using namespace torchtap::reductions;

BOOST_AUTO_TEST_CASE(a_series_merges_with_one_that_was_restored) {
  const at::Tensor x = at::randn({5, 4}), y = at::randn({3, 4});
  Series whole(Mean(MeanOptions().over({0})), Max(MaxOptions().over({0})));
  auto first = whole, second = whole;
  first.update(x);
  second.update(y);
  whole.update(x);
  whole.update(y);
  Any restored = restore(*core::save(first));
  restored.merge(second);
  const auto sink = core::make_sink(first);
  sink->merge(*core::make_sink(restore(*core::save(second))));
  for (const auto& [name, tensor] : whole.results()) {
    BOOST_TEST(close(restored.results().at(name), tensor, 1e-6));
    BOOST_TEST(close(sink->results().at(name), tensor, 1e-6));
  }
  BOOST_TEST(restored.commutative());
  BOOST_TEST(restored.describe() == whole.describe());
}

BOOST_AUTO_TEST_CASE(the_catalogue_is_what_parse_and_restore_know) {
  const auto entries = catalogue();
  BOOST_TEST(entries.size() >= 19u);
  for (const auto& entry : entries) {
    BOOST_TEST_CONTEXT(entry.name) {
      std::string text = entry.usage.substr(0, entry.usage.find_first_of(":["));
      if (entry.usage.find(":BINS") != std::string::npos) text += ":4";
      Any one = parse(text, entry.name == "Blocks" ? ParseOptions() : ParseOptions().over({0}));
      BOOST_TEST(one.describe().rfind(entry.name, 0) == 0);
      one.update(at::randn({3, 2}));
      const auto saved = core::save(one);
      BOOST_REQUIRE(saved.has_value());
      BOOST_TEST(saved->recipe == entry.name);
      BOOST_TEST(restore(*saved).results() == one.results());
      BOOST_TEST(!entry.summary.empty());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_name_may_be_added_and_a_recipe_of_no_known_one_names_its_component) {
  extend::add_to_catalogue({{"Total", "total[:N]", "a sum by another name"},
                            0,
                            1,
                            [](const extend::Arguments& given, const ParseOptions& rows) {
                              if (!given.empty()) (void)extend::whole_number(given[0]);
                              return Any(Sum(SumOptions().over(rows.over()).over_all(rows.over_all())));
                            },
                            [] { return Any(Sum()); }});
  BOOST_TEST(parse("total:3").describe() == "Sum");
  BOOST_CHECK_THROW(parse("total:x"), c10::ValueError);
  BOOST_TEST(catalogue().back().name == "Total");
  BOOST_CHECK_EXCEPTION(restore({"Formats", ""}), c10::ValueError,
                        torchtap_test::says({"Formats is a reduction of the component quantization",
                                             "link torchtap::quantization"}));
}

BOOST_AUTO_TEST_SUITE_END()
