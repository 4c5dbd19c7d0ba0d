#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <torchtap/core/sink.hpp>
#include <vector>

namespace torchtap::recorders::detail {

/// Sinks beside those of a record, so that threads need not wait for one another: each thread has a lane of
/// its own, and all are merged into the record's when somebody reads.
///
/// A lane takes samples only after one of them was found to go with what the record has: a sample that does
/// not must be refused when it comes, not when lanes are merged. Thread-safe; the lock of a lane is taken
/// last.
class Lanes {
 public:
  Lanes();

  /// Folds `samples` into the sinks of this thread's lane from slot `first` on, all of them or none,
  /// undefined ones left out, and adds one to `events`. False, and nothing done, if one of those sinks is not
  /// there yet.
  bool update(c10::ArrayRef<at::Tensor> samples, std::size_t first, std::atomic<std::int64_t>& events);
  /// Puts a sink that was found to go with slot `slot` of the record into this thread's lane. False, and
  /// `sink` left as it is, if another thread of the same lane was first.
  bool put(std::unique_ptr<core::Sink>& sink, std::size_t slot);
  /// Merges what the lanes have into `sinks`, slot by slot, and empties them. What throws leaves the lanes
  /// that were not merged yet as they are.
  void merge_into(c10::ArrayRef<core::Sink*> sinks);
  /// Forgets everything.
  void clear();

 private:
  struct alignas(64) Lane {  // a cache line, so that lanes do not slow one another down
    std::mutex mutex;
    std::vector<std::unique_ptr<core::Sink>> sinks;
  };
  Lane& mine();

  std::vector<Lane> lanes_;
};

}  // namespace torchtap::recorders::detail
