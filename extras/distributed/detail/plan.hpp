#pragma once

/// Decides which rank merges which states, or which part of one.

#include <cstdint>
#include <vector>

#include <torchtap/distributed/detail/header.hpp>
#include <torchtap/distributed/detail/packed_state.hpp>

namespace torchtap::distributed::detail {

/// The work of a merge, shared among ranks; the leading rank makes it of the headers.
struct Plan {
  /// States below this size are merged by the root: more messages would cost more.
  static constexpr std::int64_t kWorthSharing = std::int64_t{1} << 20;
  /// The owner of a state of which each merging rank merges a part.
  static constexpr std::int64_t kAll = -1;

  struct Module {
    std::int64_t owner = 0;
    std::vector<std::int64_t> whole;  ///< the sizes of its elements, if all ranks own it

    template <class Archive>
    void serialize(Archive& archive) {
      archive(owner, whole);
    }
  };

  std::vector<std::int64_t> merging;  ///< ranks, ascending; each merges the part of its place in this list
  std::vector<Module> modules;        ///< by place

  /// Whether a rank besides `root` merges.
  bool shared(int root) const;
  /// The place of a rank in `merging`; -1 if it is not there.
  std::int64_t part_of(int rank) const;
  /// For a reader of part `part` of a state of all ranks.
  Elements cut(const Module& module, std::int64_t part) const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(merging, modules);
  }
};

/// The plan for `modules`, the united modules of `headers`. `direct`: whether ranks can send each other data
/// all at a time; otherwise the root merges everything.
Plan plan_of(const std::vector<Header>& headers, const std::vector<storage::EntryId>& modules, bool direct);

}  // namespace torchtap::distributed::detail
