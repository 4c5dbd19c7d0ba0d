// One rank of a test: a process that the tests of torchtap::distributed start several times.
//
// usage: rank SCENARIO, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, RANKS_LINK and RANKS_FILE
// With RANKS_OUT, the numbers of open files, it forks a rank for each of them, writes their process numbers
// and ends.
#include <ATen/Parallel.h>
#include <signal.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <thread>

#include <torchtap/distributed/detail/tcp_options.hpp>
#if TORCHTAP_TEST_GLOO
#include <gloo/transport/device.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif
#if TORCHTAP_TEST_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "support.hpp"

namespace rank_test {
namespace {

/// Asks the store seldom, so that its rank learns last what happened.
class Slow final : public c10d::PrefixStore {
 public:
  using PrefixStore::PrefixStore;
  bool check(const std::vector<std::string>& keys) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return PrefixStore::check(keys);
  }
};

/// Served by rank 0, for as long as it runs.
c10::intrusive_ptr<c10d::Store> served(int rank, int size) {
  auto options = tap::distributed::detail::tcp_options();
  options.port = static_cast<std::uint16_t>(std::stoi(variable("MASTER_PORT")));
  options.isServer = rank == 0;
  options.numWorkers = size;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  if (rank == 0) return c10::make_intrusive<c10d::PrefixStore>("ranks", store);
  return c10::make_intrusive<Slow>("ranks", store);
}

/// Becomes each of the ranks in a process of its own; the first process ends. Nothing has started a thread
/// yet.
void fork_ranks(const std::string& outs) {
  std::istringstream numbers(outs);
  int rank = 0;
  for (int out = -1; numbers >> out; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(out, STDOUT_FILENO);
      for (std::istringstream all(outs); all >> out;) ::close(out);
      ::setenv("RANK", std::to_string(rank).c_str(), 1);
      return;
    }
    if (pid < 0 || ::write(STDOUT_FILENO, &pid, sizeof pid) != sizeof pid) ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace

tap::distributed::Group make_group(std::chrono::milliseconds timeout) {
  const std::string link = variable("RANKS_LINK");
  if (link == "environment") {
    return tap::distributed::from_environment(
        tap::distributed::EnvironmentOptions().timeout(timeout).linger(std::chrono::seconds(2)));
  }
  const int rank = std::stoi(variable("RANK")), size = std::stoi(variable("WORLD_SIZE"));
  if (link == "served") return {served(rank, size), rank, size};
  const c10::intrusive_ptr<c10d::Store> store =
      c10::make_intrusive<c10d::FileStore>(variable("RANKS_FILE"), size);
  store->setTimeout(std::chrono::seconds(60));
  if (link == "store") return {store, rank, size};
#if TORCHTAP_TEST_GLOO
  using Gloo = c10d::ProcessGroupGloo;
  // As extras/distributed/README.md tells: Gloo's threads inherit it, and write to ranks that died.
  sigset_t pipes;
  ::sigemptyset(&pipes);
  ::sigaddset(&pipes, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipes, nullptr);
  const auto options = Gloo::Options::create();
  options->timeout = timeout;
  options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  const auto group =
      c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store), rank, size, options);
  if (link == "group") return *group;
  if (link == "both") return {group, c10::make_intrusive<c10d::PrefixStore>("torchtap", store)};
#endif
#if TORCHTAP_TEST_NCCL
  if (link == "nccl") {
    // Ranks that seem to run on hosts of their own may share a device.
    ::setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
    using Nccl = c10d::ProcessGroupNCCL;
    const auto options = Nccl::Options::create();
    options->timeout = timeout;
    return *c10::make_intrusive<Nccl>(c10::make_intrusive<c10d::PrefixStore>("nccl", store), rank, size,
                                      options);
  }
#endif
  throw std::invalid_argument("RANKS_LINK is " + link);
}

}  // namespace rank_test

int main(int, char** argv) {
  using namespace rank_test;
  if (const std::string outs = variable("RANKS_OUT"); !outs.empty()) fork_ranks(outs);
  at::set_num_threads(1);
  std::map<std::string, Scenario> all;
  add_merging(all);
  add_recorders(all);
  add_errors(all);
  add_losses(all);
  const auto found = all.find(argv[1]);
  if (found == all.end()) {
    say("failed: there is no scenario ", argv[1]);
    return 2;
  }
  try {
    found->second();
  } catch (const c10::Error& error) {
    say("failed ", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    say("failed ", error.what());
    return 1;
  }
  return 0;
}
