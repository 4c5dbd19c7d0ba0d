#pragma once

/// Reductions that several threads fold into at the same time.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <torchtap/core/sink.hpp>

namespace torchtap::recorders::detail {

/// Thread sinks: copies of a record's reductions, one set for each thread, so that threads need not wait for
/// one another. They are merged into the record's own when a result is read.
///
/// A thread's first sample of a slot is merged with the record on trial, so that an incompatible sample
/// throws in the thread that recorded it, not later in a reading thread. Thread-safe; its locks are taken
/// last.
class ThreadSinks {
 public:
  ThreadSinks();

  /// Folds `samples`, the tensors of one event, into this thread's sinks of the slots from `first_slot` on,
  /// all of them or none, without undefined ones, and counts the event: in `*events`, which all threads
  /// write, or in `folded()`, which they do not, if that is null. Returns false and does nothing if one of
  /// these sinks does not exist yet.
  bool update(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, std::atomic<std::int64_t>* events);
  /// How many slots this thread has sinks of. To be asked while this thread updates them.
  std::int64_t slots_here() noexcept { return static_cast<std::int64_t>(mine().sinks.size()); }
  /// The events that were counted here since this object was made.
  std::int64_t folded() const noexcept;
  /// Makes `sink`, which is known to be compatible with the record, this thread's sink of `slot`. Returns
  /// false and leaves `sink` as it is if another thread with the same place was first.
  bool put(std::unique_ptr<core::Sink>& sink, std::size_t slot);
  /// Merges all sinks into `sinks`, slot by slot, and adds the number of events that `update` folded to
  /// `events`. Afterwards there are no thread sinks. If a merge throws, sinks that were not merged yet stay.
  void merge_into(c10::ArrayRef<core::Sink*> sinks, std::int64_t& events);
  /// Discards all thread sinks. Returns the number of events that `update` had folded.
  std::int64_t clear();

 private:
  struct alignas(128) Place {  // its own cache lines, which processors fetch in pairs
    std::mutex mutex;
    std::vector<std::unique_ptr<core::Sink>> sinks;  // by slot
    std::int64_t events = 0;                         // folded by `update` and neither merged nor discarded
    std::atomic<std::int64_t> folded{0};             // its part of `folded()`; written under the lock
  };
  Place& mine();

  std::vector<Place> places_;
};

}  // namespace torchtap::recorders::detail
