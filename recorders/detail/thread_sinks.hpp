#pragma once

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
/// one another. They are merged into the record's own when somebody reads.
///
/// A thread's first sample of a slot is merged with the record on trial, so that a sample which does not go
/// with the others throws in the thread that has it, and not later in the one that reads. Thread-safe; the
/// locks in here are taken last.
class ThreadSinks {
 public:
  ThreadSinks();

  /// Folds `samples`, the tensors of one event, into this thread's sinks of the slots from `first_slot` on,
  /// all of them or none, undefined ones left out, and adds one to `events`. False, and nothing done, if one
  /// of those sinks is not there yet.
  bool update(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, std::atomic<std::int64_t>& events);
  /// Makes `sink`, which was found to go with the record, this thread's sink of `slot`. False, and `sink`
  /// left as it is, if another thread that shares the place was first.
  bool put(std::unique_ptr<core::Sink>& sink, std::size_t slot);
  /// Merges all sinks into `sinks`, slot by slot, and adds the number of events that `update` folded to
  /// `events`. Afterwards there are no thread sinks. What throws leaves those that were not merged yet.
  void merge_into(c10::ArrayRef<core::Sink*> sinks, std::int64_t& events);
  /// Forgets everything. Returns the number of events that `update` had folded.
  std::int64_t clear();

 private:
  struct alignas(64) Place {  // a cache line, so that threads do not slow one another down
    std::mutex mutex;
    std::vector<std::unique_ptr<core::Sink>> sinks;  // by slot
    std::int64_t events = 0;                         // folded by `update`
  };
  Place& mine();

  std::vector<Place> places_;
};

}  // namespace torchtap::recorders::detail
