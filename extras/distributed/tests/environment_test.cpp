// from_environment: launchers, variables that are wrong, and other users of the same store.
#include <boost/test/unit_test.hpp>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <torchtap/distributed/distributed.hpp>

#include "launch.hpp"
#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(environment)

namespace distributed = torchtap::distributed;
using torchtap_test::Launch;
using torchtap_test::run_ranks;
using torchtap_test::says;

namespace {

/// Sets the variables of this process for a test.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& values) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) ::unsetenv(name);
    for (const auto& [name, value] : values) ::setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) ::unsetenv(name);
  }
};

/// Runs a line of the shell in `folder`, where `torchrun` is that of the Python which has torch, and
/// ./my_program a rank.
int run_in(const torchtap_test::TemporaryDirectory& folder, const std::string& line) {
  const auto script = [&folder](const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << "#!/bin/sh\nexec " << text << '\n';
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  };
  script("torchrun", TORCHTAP_TEST_PYTHON " -m torch.distributed.run \"$@\"");
  script("my_program", TORCHTAP_TEST_RANK " environment");
  std::ofstream(folder / "line.sh") << line << '\n';
  const std::string command =
      "cd " + folder.path() +
      " && env PATH=.:$PATH RANKS_LINK=environment OMP_NUM_THREADS=1 PET_MASTER_PORT=" +
      std::to_string(torchtap_test::free_port()) + " sh line.sh >said 2>&1";
  return std::system(command.c_str());
}

/// The line of extras/distributed/README.md that starts ranks.
std::string line_of_the_guide() {
  std::ifstream guide(TORCHTAP_TEST_SOURCE "/extras/distributed/README.md");
  for (std::string line; std::getline(guide, line);) {
    if (line.compare(0, 9, "torchrun ") == 0) return line;
  }
  return "";
}

/// That of Debian 13 asks for a library (libuv) that its LibTorch was built without, whatever it is to start.
struct HasTorchrun {
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
    const torchtap_test::TemporaryDirectory folder;
    // Without -r, -t and a folder for logs, torchrun of Debian 12 fails on its Python 3.11.
    const char* const line = "torchrun -r 1 -t 1 --log_dir logs --no_python --nproc_per_node 1 true";
    if (sizeof TORCHTAP_TEST_PYTHON > 1 && run_in(folder, line) == 0) return true;
    boost::test_tools::assertion_result no(false);
    no.message() << "torchrun does not start even `true` here";
    return no;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(gives_ranks_of_a_launcher_a_group) {
  Launch launch;
  launch.size = 3;
  launch.scenario = "environment";
  const auto results = run_ranks(launch);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    BOOST_TEST(results[rank].status == 0);
    BOOST_TEST(results[rank].at("rank") == std::to_string(rank) + " of 3");
    BOOST_TEST(results[rank].at("sum") == "6");
  }
  BOOST_TEST(distributed::has_gloo() == torchtap_test::with_gloo());
}

BOOST_AUTO_TEST_CASE(works_under_torchrun_as_the_guide_has_it,
                     *boost::unit_test::precondition(HasTorchrun())) {
  const torchtap_test::TemporaryDirectory folder;
  BOOST_TEST(run_in(folder, line_of_the_guide()) == 0);
  int right = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.path().filename() != "stdout.log") continue;
    std::ifstream stream(entry.path());
    for (std::string line; std::getline(stream, line);) right += line == "sum 10" ? 1 : 0;
  }
  BOOST_TEST(right == 4);
  if (right != 4) BOOST_TEST_MESSAGE(std::ifstream(folder / "said").rdbuf());
}

// Connections to all ranks need descriptors: the limit is raised as far as it may be, and told where that is
// not enough.
BOOST_AUTO_TEST_CASE(raises_the_limit_of_descriptors_or_says_it) {
  Launch launch;
  launch.size = 3;
  launch.scenario = "environment";
  const auto limited = [](const std::string& limit) {
    return std::vector<std::string>{"/bin/sh", "-c",
                                    "ulimit " + limit + " && exec " TORCHTAP_TEST_RANK " environment"};
  };
  launch.others = {{0, limited("-Sn 16")}, {1, limited("-Sn 16")}};
  for (const auto& result : run_ranks(launch)) BOOST_TEST(result.at("sum") == "6");
  launch.others = {{0, limited("-n 30")}, {1, {"/bin/true"}}, {2, {"/bin/true"}}};
  const std::string text = run_ranks(launch).at(0).at("failed");
  for (const char* part :
       {"distributed::from_environment: ", "rank 0 of 3", "file descriptors", "may have 30", "ulimit"}) {
    BOOST_TEST(text.find(part) != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE(needs_its_variables) {
  {
    const Variables none({});
    BOOST_CHECK_EXCEPTION(
        distributed::from_environment(), c10::ValueError,
        says({"distributed::from_environment: ", "WORLD_SIZE", "not set", "torchrun --no_python"}));
  }
  {
    const Variables wrong({{"WORLD_SIZE", "2"}, {"RANK", "2"}});
    BOOST_CHECK_EXCEPTION(distributed::from_environment(), c10::ValueError,
                          says({"RANK", "\"2\"", "0 to 1"}));
  }
  {
    const Variables wrong(
        {{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "http"}});
    BOOST_CHECK_EXCEPTION(distributed::from_environment(), c10::ValueError,
                          says({"MASTER_PORT", "\"http\""}));
  }
}

BOOST_AUTO_TEST_CASE(of_one_rank_needs_no_address) {
  const Variables alone({{"WORLD_SIZE", "1"}, {"RANK", "0"}});
  const distributed::Group group = distributed::from_environment();
  BOOST_TEST(group.size() == 1);
  BOOST_TEST(group.rank() == 0);
}

// A rank whose store never comes says where it looked.
BOOST_AUTO_TEST_CASE(says_where_it_looked_for_the_store) {
  const Variables alone(
      {{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "9"}});
  const auto options = distributed::EnvironmentOptions().timeout(std::chrono::milliseconds(1200));
  BOOST_CHECK_EXCEPTION(distributed::from_environment(options), c10::Error,
                        says({"rank 1", "127.0.0.1", "MASTER_PORT 9", "1200 ms"}));
}

BOOST_AUTO_TEST_CASE(refuses_groups_that_are_none) {
  BOOST_CHECK_THROW(distributed::Group(c10::intrusive_ptr<c10d::ProcessGroup>()), c10::ValueError);
  BOOST_CHECK_THROW(distributed::Group(c10::intrusive_ptr<c10d::Store>(), 0, 1), c10::ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
