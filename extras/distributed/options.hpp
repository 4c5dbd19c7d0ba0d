#pragma once

/// Options of a merge over ranks.

#include <torch/arg.h>

#include <chrono>
#include <cstdint>

#include <torchtap/base/api.hpp>

namespace torchtap::distributed {

/// In which order states are merged. Both keep the order of ranks; they differ in the last bits of sums.
enum class Order {
  /// The root takes one rank after the other, and gets the bits of one process that merges in rank order.
  ranks,
  /// Neighbours merge, then neighbouring pairs, and so on: the same bits in each run with the same number of
  /// ranks, and less time from some 16 ranks on.
  tree,
};

/// The options of `merge_ranks`. All ranks have to give the same options.
class TORCHTAP_API MergeRanksOptions {
  /// The time to wait for another rank before it counts as lost. It has to exceed the time between the
  /// arrival of the first and of the last rank.
  TORCH_ARG(std::chrono::milliseconds, timeout) = std::chrono::minutes(5);
  /// The rank that decides, and merges what is not shared among ranks. It needs memory for two such states
  /// besides its own.
  TORCH_ARG(int, root) = 0;
  /// Whether all ranks get the result, or only the root; the others then keep their data.
  TORCH_ARG(bool, everywhere) = true;
  /// In which order states are merged.
  TORCH_ARG(Order, order) = Order::ranks;
  /// Whether recorders of different modules are an error. Otherwise every rank gets the union of all modules,
  /// as ranks of a pipeline need.
  TORCH_ARG(bool, same_modules) = false;
  /// How many bytes of kept samples all ranks together may merge; with 0, recorders that keep samples are an
  /// error. Samples are appended in the order of ranks.
  TORCH_ARG(std::int64_t, samples) = 0;
};

}  // namespace torchtap::distributed
