#pragma once

/// Defines `Slots`, what a recorder has of one module: the reduction or the samples of each slot, with their
/// counts, under one lock.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/not_recorded.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/recorders/detail/event_counts.hpp>
#include <torchtap/recorders/detail/own_code.hpp>
#include <torchtap/recorders/detail/sample_list.hpp>
#include <torchtap/recorders/kind.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/storage/entry.hpp>

namespace torchtap::recorders::detail {

/// The data of one slot.
struct TORCHTAP_API SlotData {
  std::unique_ptr<core::Sink> sink;  // null if every sample is kept
  SampleList list;
  std::optional<core::Value> fixed;  // set by the user, instead of the results of the sink
  std::optional<at::Device> device;  // where samples were added up, and results belong; else that of the sink
  SlotData clone() const;
};

/// What a recorder has of one module, shared by its `Record` and its `Taker`. Public, because both write it:
/// under the lock, but for what is atomic.
class TORCHTAP_API Slots {
 public:
  Slots(RecorderKind kind, std::shared_ptr<const RecorderOptions> options, storage::EntryId id);
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  const RecorderKind kind;
  const std::shared_ptr<const RecorderOptions> options;
  const storage::EntryId id;
  const bool own_reduction;  ///< the reduction runs code of the program's

  std::mutex mutex;
  std::vector<SlotData> list;            ///< one, or with `all_tensors` all slots seen so far
  std::int64_t recorded = 0;             ///< samples in `list`
  std::atomic<std::int64_t> samples{0};  ///< also those that a taker has not settled, unless it counts them
  EventCounts counts;                    ///< of the events that gave no sample

  /// `ForwardOutput "layer1" (Conv2d)`: how messages begin.
  std::string describe() const;
  SlotData fresh_slot() const;
  /// Called under the lock. The slot, which is added if it is new; throws if a reduction cannot continue,
  /// because its value was set by hand.
  SlotData& to_fold(std::size_t index);
  /// Called under the lock. Counts a sample; no other thread does so without the lock.
  void count_one() noexcept {
    ++recorded;
    samples.store(samples.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// Counts an event whose error says that the sample does not fit. True if that is all, because no
  /// `on_error` is told.
  bool leaves_out(const c10::Error& error);
  /// Called in a handler. Tells `on_error` of the exception, or throws it on.
  void report() const;

  /// The lock for who reads or replaces what is recorded. Throws where code of the program's that this thread
  /// runs under the lock has come back here.
  class Lock {
   public:
    explicit Lock(Slots& slots) : Lock(slots, std::defer_lock) { lock_.lock(); }
    Lock(Slots& slots, std::try_to_lock_t) : Lock(slots, std::defer_lock) {
      static_cast<void>(lock_.try_lock());
    }
    explicit operator bool() const noexcept { return lock_.owns_lock(); }

   private:
    Lock(Slots& slots, std::defer_lock_t later) : lock_(slots.mutex, later) {
      if (slots.own_reduction) own_.emplace(slots, OwnCode::What::reduction);
    }
    std::optional<OwnCode> own_;
    std::unique_lock<std::mutex> lock_;
  };

  /// Removes slots that were added for an event, unless it is kept.
  struct Added {
    explicit Added(std::vector<SlotData>& slots) : slots(slots), before(slots.size()) {}
    ~Added() {
      if (!kept) slots.erase(slots.begin() + static_cast<std::ptrdiff_t>(before), slots.end());
    }
    Added(const Added&) = delete;
    Added& operator=(const Added&) = delete;

    std::vector<SlotData>& slots;
    const std::size_t before;
    bool kept = false;
  };
};

}  // namespace torchtap::recorders::detail
