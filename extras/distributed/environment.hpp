#pragma once

/// Makes a group of the processes that a launcher started.

#include <torch/arg.h>

#include <chrono>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/distributed/group.hpp>

namespace torchtap::distributed {

/// How `from_environment` makes a group.
class TORCHTAP_API EnvironmentOptions {
  /// The time until all ranks are connected, and then for each step of a broadcast.
  TORCH_ARG(std::chrono::milliseconds, timeout) = std::chrono::minutes(5);
  /// Precedes all keys in the store, so that torchtap never meets other users of it.
  TORCH_ARG(std::string, prefix) = "torchtap";
  /// The time that rank 0, which serves the store, waits in the destructor of its last `Group` for the other
  /// ranks to destroy their groups.
  TORCH_ARG(std::chrono::milliseconds, linger) = std::chrono::seconds(10);
};

/// The group of the processes that `torchrun --no_python`, mpirun with these variables or any other launcher
/// started: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as PyTorch reads them. All processes have to call
/// it, in the same order.
///
/// Ranks meet in a `c10d::TCPStore`. Rank 0 serves it, unless torchrun's agent does or another store of the
/// same process already listens at that port. If torchtap was built with Gloo (`has_gloo`), Gloo connects
/// ranks, on the interface GLOO_SOCKET_IFNAME if this is set; otherwise all data goes through the store. A
/// single rank needs no addresses.
///
/// Returns when all ranks are connected, and before the timeout. Throws `c10::ValueError` if a variable is
/// missing or wrong, and `c10::Error`, on all ranks, which names the ranks that did not come or died. A
/// thread may wait for a connection to such a rank for some time longer. The threads that it makes do not
/// take SIGPIPE.
TORCHTAP_API Group from_environment(const EnvironmentOptions& options = {});

/// Whether `from_environment` makes groups of Gloo.
TORCHTAP_API bool has_gloo() noexcept;

}  // namespace torchtap::distributed
