// Ranks that cannot merge, die or hang: what the others say, how soon, and that nothing is changed.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <set>

#include "launch.hpp"

BOOST_AUTO_TEST_SUITE(failures)

namespace bdata = boost::unit_test::data;
using torchtap_test::Launch;
using torchtap_test::RankResult;
using torchtap_test::run_ranks;

namespace {

Launch launch_of(int size, const std::string& scenario, const std::string& link = "environment",
                 const std::map<std::string, std::string>& variables = {}) {
  Launch launch;
  launch.size = size;
  launch.scenario = scenario;
  launch.link = torchtap_test::with_gloo() || link == "served" ? link : "store";
  launch.variables = variables;
  return launch;
}

std::vector<RankResult> ranks(int size, const std::string& scenario, const std::string& link = "environment",
                              const std::map<std::string, std::string>& variables = {}) {
  return run_ranks(launch_of(size, scenario, link, variables));
}

/// Each rank says `key` with the public name of the call and all of `parts`, and nothing was changed.
void check_error(const std::vector<RankResult>& results, const std::string& key,
                 const std::vector<std::string>& parts, const std::set<std::size_t>& without = {}) {
  std::string first;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (without.count(rank) != 0) continue;
    const std::string text = results[rank].at(key);
    if (first.empty()) first = text;
    BOOST_TEST(text == first,
               "rank " << rank << " says of " << key << ": " << text << "\nand not: " << first);
    BOOST_TEST(text.find("distributed::merge_ranks: ") != std::string::npos, text);
    for (const auto& part : parts) {
      BOOST_TEST(text.find(part) != std::string::npos, key << ": no \"" << part << "\" in: " << text);
    }
    if (results[rank].has(key + "-changed")) BOOST_TEST(results[rank].at(key + "-changed") == "no", key);
  }
  BOOST_TEST_MESSAGE(key << ": " << first);
}

}  // namespace

BOOST_DATA_TEST_CASE(are_the_same_error_on_all_ranks, bdata::make({"environment", "group", "store"}), link) {
  const auto results = ranks(3, "errors", link);
  for (const auto& result : results) {
    BOOST_TEST(result.status == 0);
    if (result.has("failed")) BOOST_ERROR(result.at("failed"));
  }
  check_error(results, "recipe", {"rank 1", "\"layer\"", "Mean", "rank 0", "Moments"});
  check_error(results, "configuration", {"rank 2", "\"layer\"", "Histogram(32)", "rank 0", "Histogram(64)"});
  check_error(results, "shape", {"rank 2", "\"layer\"", "[5]", "rank 0", "[4]", "Moments"});
  check_error(results, "shape-of-last", {"rank 2", "\"layer\"", "[5]", "rank 1", "[4]"});
  check_error(results, "version", {"rank 1", "\"layer\"", "version 2", "rank 0", "version 1", "Versioned"});
  check_error(results, "unsaved", {"rank 0", "rank 2", "cannot be saved", "serialize()"});
  check_error(results, "keeps", {"rank 1", "\"layer\"", "no reduction", "Moments"});
  check_error(results, "kept", {"rank 0", "\"layer\"", "samples(bytes)", "torchtap merge"});
  check_error(results, "too-many", {"bytes", "option samples allows 100"});
  check_error(results, "options", {"rank 2", "everywhere"});
  check_error(results, "options-root", {"rank 2 has the option root 1", "rank 0 has 0"});
  check_error(results, "options-order", {"rank 1 has the option order", "rank 0"});
  check_error(results, "options-without", {"rank 1 has the option everywhere 0", "rank 0 has 1"});
  check_error(results, "spooled", {"rank 2", "\"layer\"", "spooled", "torchtap merge"});
  check_error(results, "in-merge", {"rank 1", "\"layer\"", "Every"});
  check_error(results, "by-hand", {"rank 1", "\"layer\"", "set by hand"});
  check_error(results, "kind", {"rank 1", "\"layer\"", "ForwardInput", "rank 0", "ForwardOutput"});
  check_error(results, "modules", {"rank 2", "\"layer\"", "same_modules"});
  check_error(results, "refused", {"rank 1", "the data set is gone"}, {1});
  check_error(results, "no-root", {"rank 0", "root(rank)"});
  check_error(results, "wrong-root", {"rank 9", "0 to 2"});
  check_error(results, "wrong-timeout", {"positive"});
  for (const auto& result : results) BOOST_TEST(result.at("works") == "3 1");
}

BOOST_DATA_TEST_CASE(of_a_killed_or_stopped_rank_come_within_the_timeout,
                     bdata::make({"killed", "stopped"}) * bdata::make({"environment", "group", "store"}),
                     scenario, link) {
  const std::string name = scenario;
  const auto results = ranks(3, name, link, {{"RANKS_WHO", "1"}});
  BOOST_TEST(results[1].status == 128 + SIGKILL);
  for (const std::size_t rank : {0, 2}) {
    const std::string text = results[rank].at(name);
    BOOST_TEST(text.substr(0, 5) == "lost ", text);
    // A group alone breaks when a rank hangs, so that only the root can say which.
    const bool named =
        rank == 0 || name == "killed" || std::string(link) != "group" || !torchtap_test::with_gloo();
    BOOST_TEST((text.find("rank 1") != std::string::npos || !named), text);
    BOOST_TEST(std::stod(results[rank].at(name + "-took")) < 6.0);
    BOOST_TEST(results[rank].at(name + "-state") == "as before");
    BOOST_TEST_MESSAGE(name << " over " << link << ", rank " << rank << ": " << text);
  }
}

BOOST_DATA_TEST_CASE(of_a_dead_root_are_errors, bdata::make({"environment", "group", "store"}), link) {
  const auto results = ranks(3, "killed", link, {{"RANKS_WHO", "0"}});
  for (const std::size_t rank : {1, 2}) {
    const std::string text = results[rank].at("killed");
    BOOST_TEST(text.substr(0, 5) == "lost ", text);
    BOOST_TEST(text.find("rank 0") != std::string::npos, text);
    BOOST_TEST(std::stod(results[rank].at("killed-took")) < 6.0);
    BOOST_TEST(results[rank].at("killed-state") == "as before");
    BOOST_TEST_MESSAGE("dead root over " << link << ", rank " << rank << ": " << text);
  }
}

// The rank that died, and no other, whatever the survivors waited for at that moment, and with the root, too.
BOOST_DATA_TEST_CASE(name_the_rank_that_died_while_data_moved,
                     bdata::make({"0", "2"}) *
                         bdata::make({"environment", "both", "served", "group", "group as a tree"}),
                     who, how) {
  const std::string link = std::string(how).substr(0, std::string(how).find(' '));
  const std::vector<std::string> moments{"8000", "60000"};
  std::vector<Launch> launches;
  for (const auto& after : moments) {
    launches.push_back(launch_of(4, "dies-within", link,
                                 {{"RANKS_WHO", who},
                                  {"RANKS_AFTER", after},
                                  {"RANKS_COLUMNS", "200000"},
                                  {"RANKS_TIMEOUT", "4000"},
                                  {"RANKS_ORDER", link == how ? "ranks" : "tree"}}));
  }
  const auto all = torchtap_test::run_together(launches);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& results = all[i];
    const auto& after = moments[i];
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      if (std::to_string(rank) == who) continue;
      BOOST_TEST(results[rank].status == 0);  // and not 128 + SIGPIPE
      const std::string text = results[rank].at("within");
      BOOST_TEST_MESSAGE("rank " << who << " dies after " << after << " us over " << how << ", rank " << rank
                                 << " says after " << results[rank].at("within-took") << " s: " << text);
      if (text == "merged") continue;
      // Gloo sometimes notices a death by the timeout alone, which breaks the group.
      if (link == "group" && rank != 0 && text.find("its error names the rank") != std::string::npos)
        continue;
      const std::string dead = "rank " + std::string(who);
      BOOST_TEST((text.find("distributed::merge_ranks: " + dead) != std::string::npos ||
                  text.find("distributed::merge_ranks: the root, " + dead) != std::string::npos),
                 text);
      BOOST_TEST(std::stod(results[rank].at("within-took")) < 10.0);
    }
  }
}

// Gloo writes to connections whose other end died, which ends a program unless its threads block SIGPIPE.
BOOST_AUTO_TEST_CASE(do_not_end_other_ranks_by_a_signal) {
  for (const auto& result : ranks(3, "signals")) {
    if (torchtap_test::with_gloo()) BOOST_TEST(result.at("made") != "0");
    BOOST_TEST(result.at("taking") == "0");
  }
}

// from_environment ends in time and names the rank that did not come, or died after it came.
BOOST_AUTO_TEST_CASE(name_the_rank_that_is_lost_while_ranks_meet) {
  const double most = 8;
  Launch launch;
  launch.size = 3;
  launch.scenario = "dies-meeting";
  launch.variables = {{"RANKS_TIMEOUT", "8000"}};
  auto results = run_ranks(launch);
  BOOST_TEST(results[1].status == 128 + SIGKILL);
  for (const std::size_t rank : {0, 2}) {
    const std::string text = results[rank].at("meeting");
    BOOST_TEST(text == results[0].at("meeting"));
    BOOST_TEST(text.find("distributed::from_environment: rank 1 died or hangs") == 0, text);
    BOOST_TEST(std::stod(results[rank].at("meeting-took")) < most);
  }
  BOOST_TEST_MESSAGE(results[0].at("meeting"));
  launch.others = {{1, {"/bin/true"}}, {2, {"/bin/true"}}};
  launch.variables = {{"RANKS_TIMEOUT", "2000"}};
  results = run_ranks(launch);
  BOOST_TEST(results[0].at("meeting").find("ranks 1 and 2 did not come") != std::string::npos,
             results[0].at("meeting"));
  BOOST_TEST(std::stod(results[0].at("meeting-took")) < most);
}

BOOST_AUTO_TEST_CASE(name_the_server_that_ends_after_ranks_met) {
  const auto results = ranks(3, "server-ends");
  for (const std::size_t rank : {1, 2}) {
    const auto& result = results[rank];
    const std::string text = result.at("meeting") == "connected" ? result.at("merge") : result.at("meeting");
    BOOST_TEST(text.find("rank 0, which serves the store, died or ended") != std::string::npos, text);
  }
}

// The process that serves the store ends as soon as it has merged.
BOOST_AUTO_TEST_CASE(do_not_come_of_a_store_that_ends_after_the_merge) {
  for (const auto& result : ranks(3, "last", "served")) BOOST_TEST(result.at("last") == "merged");
}

// Whenever a rank dies: all others have the result, or none.
BOOST_DATA_TEST_CASE(are_all_or_none_if_a_rank_dies_within, bdata::make({"environment", "group"}), link) {
  const std::vector<std::string> moments{"100", "1200", "8000", "24000", "48000", "100000"};
  std::vector<Launch> launches;
  for (const auto& after : moments) {
    launches.push_back(launch_of(3, "dies-within", link,
                                 {{"RANKS_WHO", "2"}, {"RANKS_AFTER", after}, {"RANKS_COLUMNS", "200000"}}));
  }
  const auto all = torchtap_test::run_together(launches);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& results = all[i];
    const auto& after = moments[i];
    const std::string first = results[0].at("within").substr(0, 6),
                      second = results[1].at("within").substr(0, 6);
    BOOST_TEST(first == second, "after " << after << " us: " << results[0].at("within") << "\nand "
                                         << results[1].at("within"));
    if (first == "merged" && second == "merged") {
      BOOST_TEST(results[0].at("within-state") == results[1].at("within-state"));
    } else {
      for (const std::size_t rank : {0, 1}) BOOST_TEST(results[rank].at("within-state") == "as before");
    }
    BOOST_TEST_MESSAGE("dies after " << after << " us over " << link << ": " << results[0].at("within"));
  }
}

BOOST_AUTO_TEST_CASE(leave_a_group_with_a_store_in_order) {
  const auto results = ranks(3, "late", "environment", {{"RANKS_WHO", "2"}});
  for (const auto& result : results) {
    BOOST_TEST(result.status == 0);
    BOOST_TEST(result.at("late").find("rank 2") != std::string::npos, result.at("late"));
    BOOST_TEST(result.at("late-state") == "as before");
    BOOST_TEST(result.at("again") == "merged");
    BOOST_TEST(result.at("again-state") == results.front().at("again-state"));
  }
}

BOOST_AUTO_TEST_CASE(do_not_come_of_a_slow_rank_or_hide_what_a_rank_says) {
  for (const auto& result : ranks(3, "slow", "group")) BOOST_TEST(result.at("slow") == "merged");
  const auto results = ranks(3, "throws", "group");
  for (const std::size_t rank : {0, 2}) {
    BOOST_TEST(results[rank].at("throws").find("rank 1: rows of the data set are missing") !=
               std::string::npos);
    BOOST_TEST(std::stod(results[rank].at("throws-took")) < 1.5);
  }
}

BOOST_AUTO_TEST_SUITE_END()
