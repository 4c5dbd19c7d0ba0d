// Ranks in processes of their own have the bits of one process that merges in their order.
#include <ATen/Context.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <set>

#include "launch.hpp"

BOOST_AUTO_TEST_SUITE(merging_tests)

namespace bdata = boost::unit_test::data;
using torchtap_test::Launch;
using torchtap_test::RankResult;
using torchtap_test::run_ranks;

namespace {

std::vector<RankResult> ranks(int size, const std::string& scenario, const std::string& link = "environment",
                              const std::map<std::string, std::string>& variables = {}) {
  Launch launch;
  launch.size = size;
  launch.scenario = scenario;
  launch.link = link;
  launch.variables = variables;
  auto results = run_ranks(launch);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    BOOST_TEST(results[rank].status == 0,
               scenario << ": rank " << rank << " ended with " << results[rank].status);
    BOOST_TEST(!results[rank].has("failed"), scenario << ": rank " << rank);
    if (results[rank].has("failed")) BOOST_TEST_MESSAGE(results[rank].at("failed"));
  }
  return results;
}

/// All lines but those that begin with one of `apart` are the same on all ranks.
void check_alike(const std::vector<RankResult>& results) {
  BOOST_TEST(!results.front().lines.empty());
  for (const auto& result : results) {
    BOOST_CHECK_EQUAL_COLLECTIONS(result.lines.begin(), result.lines.end(), results.front().lines.begin(),
                                  results.front().lines.end());
  }
}

void check_no_difference(const std::vector<RankResult>& results) {
  for (const auto& line : results.front().lines) BOOST_TEST(line.find("DIFFERS") == std::string::npos, line);
}

const std::string& gloo_or_store(const std::string& with_gloo) {
  static const std::string store = "store";
  return torchtap_test::with_gloo() ? with_gloo : store;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(merging)

BOOST_DATA_TEST_CASE(every_reduction_as_in_one_process, bdata::make({1, 2, 3, 4, 7}), size) {
  const auto results = ranks(size, "catalogue");
  check_alike(results);
  check_no_difference(results);
  std::size_t same = 0;
  std::set<std::string> names;
  for (const auto& line : results.front().lines) {
    same += line.find(" same ") != std::string::npos ? 1U : 0U;
    if (line.compare(0, 10, "catalogue ") == 0) names.insert(line.substr(10));
  }
  BOOST_TEST(same >= 3 * 21 + 2 + 12);
  // A new reduction has to be added to the scenario.
  names.erase("Formats");  // of a part, which may not be there
  BOOST_TEST(
      names == (std::set<std::string>{"Sum", "Mean", "Moments", "Min", "Max", "AbsMax", "Norm", "Count",
                                      "First", "Last", "EMA", "Histogram", "LogHistogram", "Quantiles",
                                      "Covariance", "Gram", "TopK", "Reservoir", "Blocks"}),
      boost::test_tools::per_element());
  BOOST_TEST(std::stod(results.front().at("variance-error")) < 1e-12);
  BOOST_TEST(results.front().at("variance-count") == "280 280");
}

BOOST_DATA_TEST_CASE(every_combinator_over_every_link, bdata::make({"group", "both", "store"}), link) {
  const auto results = ranks(3, "combinators", gloo_or_store(link));
  check_alike(results);
  check_no_difference(results);
}

BOOST_DATA_TEST_CASE(keys_that_other_ranks_did_not_see, bdata::make({2, 4}), size) {
  const auto results = ranks(size, "disjoint-keys");
  check_alike(results);
  check_no_difference(results);
  BOOST_TEST(results.front().lines.size() == 10);
  BOOST_TEST(results.front().at("keys") == std::to_string(2 * (size - 1) + 1) + " right");
}

#if TORCHTAP_TEST_NCCL
boost::test_tools::assertion_result has_cuda(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result result(at::hasCUDA());
  result.message() << "there is no CUDA device";
  return result;
}

// All ranks on one device.
BOOST_TEST_DECORATOR(*boost::unit_test::precondition(has_cuda))
BOOST_DATA_TEST_CASE(over_nccl, bdata::make({2, 3}), size) {
  for (const char* scenario : {"catalogue", "combinators", "disjoint-keys", "large", "recorder"}) {
    const auto results =
        ranks(size, scenario, "nccl", {{"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_IB_DISABLE", "1"}});
    check_alike(results);
    check_no_difference(results);
    if (std::string(scenario) == "recorder") BOOST_TEST(results.front().at("as-one-process") == "yes");
  }
}
#endif

BOOST_AUTO_TEST_CASE(another_root) {
  const auto results = ranks(3, "combinators", "environment", {{"RANKS_ROOT", "2"}});
  check_alike(results);
  check_no_difference(results);
}

BOOST_DATA_TEST_CASE(in_a_tree, bdata::make({2, 3, 4, 7}), size) {
  for (const char* root : {"0", "1"}) {
    const auto results = ranks(size, "tree", "environment", {{"RANKS_ROOT", root}});
    check_alike(results);
    check_no_difference(results);
    BOOST_TEST(std::stod(results.front().at("variance-error")) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(to_the_root_alone) {
  const auto results = ranks(3, "root-only", "environment", {{"RANKS_ROOT", "1"}});
  BOOST_TEST(results[1].at("changed").substr(0, 4) == "yes ");
  for (const std::size_t rank : {0, 2}) BOOST_TEST(results[rank].at("changed").substr(0, 3) == "no ");
}

// Every part of a tensor of float64 has 8.8 MB and goes in two pieces.
BOOST_DATA_TEST_CASE(large_tensors_in_pieces, bdata::make({"environment", "store"}), link) {
  const auto results = ranks(3, "large", link);
  check_alike(results);
  check_no_difference(results);
  BOOST_TEST(std::stoll(results.front().at("bytes")) > std::int64_t{60} << 20);
}

// Parts of elementwise states, and states that look like one.
BOOST_DATA_TEST_CASE(large_states_by_all_ranks, bdata::make({2, 4}) * bdata::make({"ranks", "tree"}), size,
                     order) {
  auto results = ranks(size, "shared", gloo_or_store("group"), {{"RANKS_ORDER", order}});
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    // Each rank merges, or the root alone where data go through a store.
    const bool merges = torchtap_test::with_gloo() || rank == 0;
    BOOST_TEST(results[rank].has("added-merges") == merges);
    if (merges) BOOST_TEST(results[rank].at("added-merges") == std::to_string(size - 1));
    auto& lines = results[rank].lines;
    lines.erase(
        std::remove_if(lines.begin(), lines.end(),
                       [](const std::string& line) { return line.compare(0, 13, "added-merges ") == 0; }),
        lines.end());
  }
  check_alike(results);
  check_no_difference(results);
  BOOST_TEST(results.front().lines.size() == (std::string(order) == "tree" ? 4U : 17U));
}

BOOST_DATA_TEST_CASE(repeated_100_times, bdata::make({2, 4}), size) {
  const auto results = ranks(size, "repeated");
  check_alike(results);
  const std::string digests = results.front().at("digests");
  BOOST_TEST(digests.substr(0, 2) == "1 ");
  BOOST_TEST(digests.substr(digests.rfind(' ')) == " 100");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(recorders)

BOOST_DATA_TEST_CASE(have_what_one_process_has, bdata::make({1, 2, 3, 4}), size) {
  for (const char* scenario : {"recorder", "recorder-callable"}) {
    const auto results = ranks(size, scenario);
    check_alike(results);
    BOOST_TEST(results.front().at("as-one-process") == "yes");
    BOOST_TEST(results.front().at("afterwards") == "4");
    BOOST_TEST(results.front().at("module in").substr(0, 3) == "24 ");
  }
}

BOOST_AUTO_TEST_CASE(with_modules_in_another_order) {
  for (const char* scenario : {"reversed", "recorder-tree"}) {
    const auto results = ranks(4, scenario);
    for (const auto& result : results) {
      BOOST_TEST(result.at("as-one-process") == "yes");
      for (const char* path : {"in", "act", "out"}) {
        BOOST_TEST(result.at(std::string("module ") + path) ==
                   results.front().at(std::string("module ") + path));
      }
    }
    BOOST_TEST((results[0].lines != results[1].lines));
  }
}

BOOST_AUTO_TEST_CASE(of_a_pipeline_get_the_modules_of_all_ranks) {
  const auto results = ranks(4, "pipeline");
  for (const auto& result : results) {
    BOOST_TEST(result.at("paths") == "5 first 24");
    BOOST_TEST(result.at("own") == "kept");
    BOOST_TEST(result.at("replaced") == "1");
    for (const char* path : {"shared", "stage0", "stage1", "stage2", "stage3"}) {
      BOOST_TEST(result.at(std::string("module ") + path) ==
                 results.front().at(std::string("module ") + path));
    }
  }
}

BOOST_AUTO_TEST_CASE(are_missing_on_some_ranks) {
  const auto results = ranks(4, "without");
  BOOST_TEST(results[1].lines == std::vector<std::string>{"nothing"}, boost::test_tools::per_element());
  // Ranks 0 and 3 saw 6 batches each, in 4 modules.
  for (const std::size_t rank : {0, 2, 3}) {
    BOOST_TEST(results[rank].at("samples") == "48");
    // Rank 3 left out three events, which all ranks know.
    BOOST_TEST(results[rank].at("note").find("3 of its samples were left out: ") == 0u,
               results[rank].at("note"));
    BOOST_CHECK_EQUAL_COLLECTIONS(results[rank].lines.begin(), results[rank].lines.end(),
                                  results[0].lines.begin(), results[0].lines.end());
  }
  for (const auto& result : ranks(3, "nobody")) BOOST_TEST(result.has("done"));
}

BOOST_AUTO_TEST_CASE(merge_beside_a_rank_in_python, *boost::unit_test::enable_if<TORCHTAP_TEST_GLOO != 0>()) {
  Launch launch;
  launch.size = 4;
  launch.scenario = "with-python";
  launch.link = "group";
  launch.others[2] = {TORCHTAP_TEST_PYTHON, TORCHTAP_TEST_PYTHON_RANK};
  const auto results = run_ranks(launch);
  for (const auto& result : results) {
    BOOST_TEST(result.status == 0);
    if (result.has("failed")) BOOST_ERROR(result.at("failed"));
    BOOST_TEST(result.at("error") == results[0].at("error"));
  }
  BOOST_TEST(results[0].at("error").find("keeps every sample") != std::string::npos);
  BOOST_TEST(results[2].at("shared") == "0");
  BOOST_TEST(std::stoll(results[2].at("handed-round")) > 4 * 50000 * 8);
  for (const std::size_t rank : {1, 3}) {
    BOOST_CHECK_EQUAL_COLLECTIONS(results[rank].lines.begin(), results[rank].lines.end(),
                                  results[0].lines.begin(), results[0].lines.end());
  }
  BOOST_TEST(results[0].at("module in").substr(0, 2) == "9 ");
}

BOOST_DATA_TEST_CASE(share_their_modules, bdata::make({"ranks", "tree"}) * bdata::make({"yes", "no"}), order,
                     everywhere) {
  const auto results = ranks(4, "entries", gloo_or_store("environment"),
                             {{"RANKS_ORDER", order}, {"RANKS_EVERYWHERE", everywhere}});
  for (const auto& result : results) {
    const bool root = &result == &results[1];
    if (!root && std::string(everywhere) == "no") {
      BOOST_TEST((result.at("covariance") != results[1].at("covariance")));
      continue;
    }
    // A tree has other last bits than one process.
    if (std::string(order) == "ranks") {
      BOOST_TEST(result.at("covariance").find("same") != std::string::npos);
      BOOST_TEST(result.at("moments").find("same") != std::string::npos);
    }
    for (const char* path : {"a", "b", "c", "d"}) {
      BOOST_TEST(result.at(std::string("module ") + path) == results[1].at(std::string("module ") + path));
    }
  }
}

BOOST_AUTO_TEST_CASE(append_kept_samples_in_the_order_of_ranks) {
  for (const auto& result : ranks(3, "kept")) BOOST_TEST(result.at("kept") == "9 same");
}

BOOST_AUTO_TEST_CASE(merge_slots_that_some_ranks_have_not_seen) {
  const auto results = ranks(3, "slots");
  check_alike(results);
  BOOST_TEST(results.front().at("slots") == "1 samples 16");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
