// Makes a group from the variables that launchers set.
#include <sys/resource.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/no_pipe_signal.hpp>
#include <torchtap/distributed/detail/gloo.hpp>
#include <torchtap/distributed/detail/lost_ranks.hpp>
#include <torchtap/distributed/detail/meeting.hpp>
#include <torchtap/distributed/detail/tcp_options.hpp>
#include <torchtap/distributed/detail/transport.hpp>
#include <torchtap/distributed/environment.hpp>

namespace torchtap::distributed {
namespace {

using detail::Clock;
using detail::Milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  TORCH_CHECK_VALUE(
      value != nullptr && *value != '\0', "distributed::from_environment: the variable ", name,
      " is not set. Start the program with torchrun --no_python, or set RANK, WORLD_SIZE, MASTER_ADDR and "
      "MASTER_PORT for each process.");
  return value;
}

int number(const char* name, int least, int most) {
  const std::string text = variable(name);
  int value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  TORCH_CHECK_VALUE(
      end.ec == std::errc() && end.ptr == text.data() + text.size() && value >= least && value <= most,
      "distributed::from_environment: the variable ", name, " is \"", text, "\"; it has to be a number from ",
      least, " to ", most, ".");
  return value;
}

bool set_to_true(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && (std::strcmp(value, "True") == 0 || std::strcmp(value, "1") == 0);
}

/// Whether torchrun's agent serves the store.
bool has_agent() {
  return set_to_true("TORCHELASTIC_USE_AGENT_STORE");
}

/// The rank that serves the store, or -1.
int serving_rank() {
  return has_agent() ? -1 : 0;
}

/// Keeps the store until the other ranks are done with it, because it ends with the process that serves it.
class Served final : public detail::Links {
 public:
  Served(const Group& group, StorePtr store, bool serves, Milliseconds linger)
      : Links(*group.links()), store_(std::move(store)), serves_(serves), linger_(linger) {
    served_by(serving_rank());
  }
  ~Served() override {
    try {
      std::int64_t left = store_->add("left", 1);
      const auto end = Clock::now() + linger_;
      while (serves_ && left < size() && Clock::now() < end) {
        std::this_thread::sleep_for(Milliseconds(1));
        left = store_->add("left", 0);
      }
    } catch (const std::exception&) {  // the process that served it ended
    }
  }

 private:
  StorePtr store_;
  bool serves_;
  Milliseconds linger_;
};

/// Raises the limit of file descriptors for a connection to each rank. LibTorch's store ends a process that
/// runs out of them.
void make_room_for_connections(int rank, int size, bool serves) {
  std::error_code unknown;
  const std::filesystem::directory_iterator open("/proc/self/fd", unknown);
  const auto used = static_cast<rlim_t>(std::distance(begin(open), end(open)));
  const rlim_t spare = 32, ranks = static_cast<rlim_t>(size);
  const rlim_t needed = used + spare + (has_gloo() ? ranks : 0) + (serves ? 2 * ranks : 0);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  const rlimit raised{std::min(needed, limit.rlim_max), limit.rlim_max};
  if (raised.rlim_cur == needed && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) return;
  TORCH_CHECK(false, "distributed::from_environment: rank ", rank, " of ", size, " needs ", needed,
              " file descriptors, ", used, " of which are open, and this process may have ", limit.rlim_max,
              serves ? ". Rank 0 serves the store, to which each rank has two connections" : "",
              ". Raise the limit before the program starts: ulimit -Hn ", needed,
              " as root, LimitNOFILE in systemd, "
              "--ulimit nofile in Docker.");
}

StorePtr client(const std::string& host, c10d::TCPStoreOptions options) {
  options.isServer = false;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

/// The store, and whether this process serves it.
std::pair<StorePtr, bool> tcp_store(int rank, const EnvironmentOptions& options) {
  const std::string host = variable("MASTER_ADDR");
  c10d::TCPStoreOptions tcp = detail::tcp_options();
  tcp.port = static_cast<std::uint16_t>(number("MASTER_PORT", 1, std::numeric_limits<std::uint16_t>::max()));
  tcp.waitWorkers = false;  // ranks wait for each other when they merge
  tcp.timeout = options.timeout();
  try {
    if (rank == 0 && !has_agent()) {
      try {
        c10d::TCPStoreOptions server = tcp;
        server.isServer = true;
        return {c10::make_intrusive<c10d::TCPStore>(host, server), true};
      } catch (const std::exception&) {  // the training has a store at that port: use it
      }
    }
    return {client(host, tcp), false};
  } catch (const std::exception& error) {
    TORCH_CHECK(false, "distributed::from_environment: rank ", rank, " found no store at MASTER_ADDR ", host,
                ", MASTER_PORT ", tcp.port, " within ", options.timeout().count(),
                " ms: ", base::first_line(error), ". Start rank 0, which serves it, on that machine.");
  }
}

/// The store with keys that no other group uses: each attempt of torchrun and each group of this process has
/// its own.
StorePtr of_this_group(const StorePtr& store, int rank, const std::string& prefix) {
  const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const std::string attempt = prefix + "/attempt_" + (restarts != nullptr ? restarts : "0");
  try {
    const std::int64_t groups = store->add(attempt + "/groups/" + std::to_string(rank), 1);
    return c10::make_intrusive<c10d::PrefixStore>(attempt + "/" + std::to_string(groups), store);
  } catch (const std::exception& error) {
    TORCH_CHECK(false, "distributed::from_environment: ",
                detail::store_gone(serving_rank(), rank, detail::LinkError(base::first_line(error))),
                ". Start all ranks again.");
  }
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.compare(0, 4, "127.") == 0;
}

}  // namespace

Group from_environment(const EnvironmentOptions& options) {
  TORCH_CHECK_VALUE(options.timeout().count() > 0, "distributed::from_environment: the timeout is ",
                    options.timeout().count(), " ms; give a positive one.");
  const auto end = Clock::now() + options.timeout();
  const int size = number("WORLD_SIZE", 1, std::numeric_limits<int>::max());
  const int rank = number("RANK", 0, size - 1);
  if (size == 1) return {c10::make_intrusive<c10d::HashStore>(), 0, 1};
  make_room_for_connections(rank, size, rank == 0 && !has_agent());
  // For the threads that are made here, too: they inherit it.
  const base::NoPipeSignal ignored;
  auto [store, serves] = tcp_store(rank, options);
  store->setTimeout(options.timeout());
  store = of_this_group(store, rank, options.prefix());
  const bool local = is_loopback(variable("MASTER_ADDR"));
  const detail::Meeting meeting{store, rank, size, serving_rank(), options.timeout(), end};
  const Group group = detail::met(meeting, [=](const StorePtr& polled) {
    return detail::connected(polled, meeting.store, rank, size, meeting.timeout, local);
  });
  return Group(std::make_shared<Served>(group, store, serves, options.linger()));
}

}  // namespace torchtap::distributed
