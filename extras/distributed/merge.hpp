#pragma once

/// Merges the recorders and reductions of the ranks of a group.

#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include <torchtap/base/api.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/distributed/detail/packed_state.hpp>
#include <torchtap/distributed/group.hpp>
#include <torchtap/distributed/options.hpp>

namespace torchtap::recorders {
class Recorder;
}

namespace torchtap::distributed {

/// Gives all ranks the data of one recorder that saw the samples of rank 0, then of rank 1, and so on: the
/// same bits on every rank.
///
/// Every rank of `group` has to call it, or one of the functions below. Modules are joined by their path, in
/// any order; a recorder gets a subrecorder without a module for each module that it lacks
/// (`Recorder::replace` attaches it). Reductions that depend on the order of samples (First, Last, EMA,
/// indices of TopK, Reservoir) follow the order of ranks. Afterwards each rank has the total, so `reset` the
/// recorders before they record samples for another merge. The recorder must not record meanwhile.
///
/// Ranks agree before anything changes: if kinds, reductions, their configurations, the shapes of their rows
/// or the versions of their states differ, if a rank cannot hand over its state, if samples are kept without
/// `MergeRanksOptions::samples`, or if a merge throws, all ranks throw the same `c10::ValueError`, which
/// names rank and module. No recorder was changed then, and the next merge works. If a rank died or does not
/// come within `MergeRanksOptions::timeout`, the others throw `c10::Error`; `Group` says which ranks the
/// error names, and whether the group remains usable.
///
/// States go to the ranks that merge them, in the order of ranks. Small states go to the root, which
/// broadcasts the result. If a process group connects the CPUs of ranks, each rank merges some of the large
/// states, and a part of the elements of each elementwise one (`core::Elementwise`). Only one rank computes
/// each number, so ranks have the same bits even if their processors differ. A rank holds the result and two
/// shares besides its own state for any number of ranks; where the root merges all, it holds two states.
TORCHTAP_API void merge_ranks(recorders::Recorder& recorder, const Group& group,
                              const MergeRanksOptions& options = {});
/// Takes part in the merge of the other ranks, in a process that has no recorder. The root needs one.
TORCHTAP_API void merge_ranks(const Group& group, const MergeRanksOptions& options = {});
/// Takes part with an error in a process that failed before it could merge: all other ranks throw this error
/// instead of waiting for the timeout. Throws nothing itself.
TORCHTAP_API void refuse_ranks(const std::string& why, const Group& group,
                               const MergeRanksOptions& options = {}) noexcept;

namespace detail {
/// `sink`, which does not change, merged with the other ranks' sinks; null if nothing was merged.
TORCHTAP_API std::unique_ptr<core::Sink> merged_sink(const core::Sink& sink, const Group& group,
                                                     const MergeRanksOptions& options);

/// A sink of a reduction, which gets it back in the end.
template <class R>
class Lent {
 public:
  explicit Lent(R& reduction) : reduction_(reduction), sink_(std::move(reduction)) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() { reduction_ = std::move(sink_.reduction()); }
  const core::Sink& sink() const { return sink_; }

 private:
  R& reduction_;
  core::SinkOf<R> sink_;
};
}  // namespace detail

/// Merges a single reduction, of this library or your own with cereal's `serialize`. It may not be read
/// meanwhile.
///
///     reductions::Moments moments;
///     for (…) moments.update(batch);
///     distributed::merge_ranks(moments, group);
template <class R, class = std::enable_if_t<core::is_reduction_v<R>>>
void merge_ranks(R& reduction, const Group& group, const MergeRanksOptions& options = {}) {
  std::unique_ptr<core::Sink> merged;
  if constexpr (std::is_nothrow_move_constructible_v<R> && std::is_nothrow_move_assignable_v<R>) {
    const detail::Lent<R> lent(reduction);
    merged = detail::merged_sink(lent.sink(), group, options);
  } else {
    merged = detail::merged_sink(core::SinkOf<R>(reduction), group, options);
  }
  if (merged == nullptr) return;
  if constexpr (std::is_move_assignable_v<R>) {
    reduction = std::move(static_cast<core::SinkOf<R>&>(*merged).reduction());
  } else {  // a fold of a lambda has no assignment
    std::stringstream bytes;
    detail::StateWriter writer(bytes);
    merged->save(writer);
    detail::StateReader reader(bytes, std::move(writer.tensors));
    reader(reduction);
  }
}

}  // namespace torchtap::distributed
