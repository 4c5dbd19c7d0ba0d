#pragma once

/// The data of a subrecorder, and the functions of its hooks.

#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/core/accumulator.hpp>
#include <torchtap/core/archive.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/detail/event_counts.hpp>
#include <torchtap/recorders/detail/own_code.hpp>
#include <torchtap/recorders/detail/sample_list.hpp>
#include <torchtap/recorders/detail/snapshot_format.hpp>
#include <torchtap/recorders/detail/store.hpp>
#include <torchtap/recorders/detail/thread_sinks.hpp>
#include <torchtap/recorders/kind.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/storage/entry.hpp>

namespace torch::nn {
class Module;
}

namespace torchtap::recorders::detail {

class Record;
class Pairing;
struct Pair;

/// The records that `Recorder::until_recorded` still waits for in this thread.
struct Awaited {
  std::vector<const Record*> records;
  Awaited* outer = nullptr;
};
/// Thrown by a hook to end a forward. Not derived from `std::exception`, so that only `until_recorded`
/// catches it.
struct StopForward {
  const Awaited* awaited;
};
Awaited*& awaited_in_this_thread() noexcept;

/// The data of one slot.
struct SlotData {
  std::unique_ptr<core::Sink> sink;  // null if every sample is kept
  SampleList list;
  std::optional<core::Value> fixed;  // set by the user, instead of the results of the sink
  std::optional<at::Device> device;  // where samples were added up, and results belong; else that of the sink
  SlotData clone() const;
};

/// Where samples of one slot on a device are added up before its sink takes them in.
struct DeviceSlot {
  std::unique_ptr<core::Accumulator> sum;
  std::int64_t added = 0;            // samples that events added since it was last settled
  std::optional<at::Device> device;  // once there was one
};

/// The data of one module without its record, so that merging and restoring can be prepared and then put in
/// place.
struct RecordData {
  std::vector<SlotData> slots;
  std::int64_t samples = 0;
  core::NotRecorded not_recorded;
};

/// The data of one subrecorder, shared with its hook, so that either may be destroyed first. Thread-safe.
///
/// Its functions are in eight files: record.cpp (events), record_pair.cpp, record_fold.cpp,
/// record_device.cpp, record_keep.cpp, record_stream.cpp, record_values.cpp and record_data.cpp.
class Record : public std::enable_shared_from_this<Record> {
 public:
  /// `alone`: one call attached only to this module.
  Record(RecorderKind kind, std::shared_ptr<const RecorderOptions> options, const model::ModuleRef& module,
         storage::EntryId id, bool alone);
  /// For a parameter, or for a module that is not in this process.
  Record(RecorderKind kind, std::shared_ptr<const RecorderOptions> options, storage::EntryId id, bool alone);
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record();
  /// Says which parameter it is of.
  void watch(const at::Tensor& parameter) { parameter_.emplace(parameter.getIntrusivePtr()); }
  /// Has the end of a forward of this root add samples that wait.
  void end_with(const model::ModuleRef& root) {
    const std::lock_guard lock(mutex_);
    forwards_.emplace(root);
  }
  /// Call it once, before the first event.
  void store_in(std::shared_ptr<Store> store);

  const storage::EntryId id;
  const RecorderKind kind;
  const std::shared_ptr<const RecorderOptions> options;

  /// Called by the hook.
  void on_event(hooks::Event& event) {
    if (options->on_error() == nullptr) {
      record(event);
    } else {
      record_or_report(event);
    }
  }

  /// Called by the hook for a gradient that cannot be reported.
  void on_left_out(const hooks::Event& event, const std::string& why);

  /// Pairs samples of `module` with the companions of `RecorderOptions::with`, as long as the hooks are kept.
  std::vector<hooks::Handle> pair(const model::ModuleRef& module);
  /// Called by the hook of the `index`th companion.
  void on_companion(hooks::Event& event, std::size_t index);
  /// From now on no sample waits.
  void be_on_time() noexcept { on_time_.store(true); }
  /// Leaves out a sample that waited; `counted`: as one of an event.
  void lose_late(const char* why, bool counted) noexcept;
  /// Counts the tensors that waited in vain.
  void count_unmatched(const Pair& pair) noexcept;
  /// For a recorder of gradients, called during the forward. Throws if the tensors whose gradients are
  /// recorded are in a value of an unknown type, because no gradient would arrive.
  void on_forward(const hooks::Tensors& tensors);

  /// Waits for the device if a graph records.
  std::int64_t samples() const noexcept {
    if (captured_.load(std::memory_order_relaxed)) settle_graphs();
    return counted();
  }
  /// Samples, without those of graphs that were not read yet.
  std::int64_t counted() const noexcept {
    const std::int64_t counted = samples_.load();  // first: samples that are forgotten are subtracted from it
    const ThreadSinks* const others = thread_sinks_.load(std::memory_order_acquire);
    return others == nullptr ? counted : counted + others->folded();
  }
  std::int64_t events() const noexcept {
    if (source_ != nullptr && options->reduction() == nullptr) return seen_.load();
    return samples() + counts_.events();
  }
  /// The events that gave no sample.
  const EventCounts& not_recorded() const noexcept { return counts_; }
  /// The stream of the spool, after moving samples in memory and `note` to it; null while nothing is spooled.
  storage::Spool::Stream* spooled() const;
  /// Throws if samples are spooled.
  void refuse_spooled(const char* call) const;
  /// Its place in the store.
  std::int64_t module() const noexcept { return module_; }
  core::Value value() const;
  core::Results results() const;
  /// The entry for `Recorder::save`, all of one moment. Throws if samples are spooled.
  storage::Entry entry() const;
  std::int64_t slots() const noexcept;
  core::Value slot(std::int64_t index) const;
  void set(const core::Value& value);
  void apply(const std::function<at::Tensor(const at::Tensor&, std::int64_t)>& function);
  void reset();
  core::Value take();

  /// Why there may be no samples although the module ran, or how many were left out and why; empty if nothing
  /// is known.
  std::string note() const;
  std::string words() const;
  /// "ForwardOutput "layer1" (Conv2d)": how messages begin.
  std::string describe() const;

  /// A copy of the data, all of one moment. Throws if samples are spooled.
  RecordData data() const;
  /// Replaces the data.
  void put(RecordData data);
  /// Throws if `merge` would.
  void check_merge(const RecordData& theirs) const;
  /// Adds the data of another record. If it throws, nothing changes.
  void merge(const RecordData& theirs);
  void save(core::OutputArchive& archive) const;
  /// Reads the data of `save`, without putting it in place.
  RecordData load(SnapshotReader& snapshot) const;

 private:
  /// The lock. Throws where code of the program's that this thread runs under it has come back here.
  class Lock {
   public:
    explicit Lock(const Record& record) : Lock(record, std::defer_lock) { lock_.lock(); }
    Lock(const Record& record, std::try_to_lock_t) : Lock(record, std::defer_lock) {
      static_cast<void>(lock_.try_lock());
    }
    explicit operator bool() const noexcept { return lock_.owns_lock(); }

   private:
    Lock(const Record& record, std::defer_lock_t later) : lock_(record.mutex_, later) {
      if (record.own_reduction_) own_.emplace(record, OwnCode::What::reduction);
    }
    std::optional<OwnCode> own_;
    std::unique_lock<std::mutex> lock_;
  };
  /// The turn of a thread to call the transform. Not under the lock, so that a transform may read what was
  /// recorded.
  class Turn {
   public:
    explicit Turn(const Record& record) : lock_(record.turn_, std::defer_lock) {
      if (record.options->transform() == nullptr) return;
      own_.emplace(record, OwnCode::What::transform);
      lock_.lock();
    }

   private:
    std::optional<OwnCode> own_;
    std::unique_lock<std::mutex> lock_;
  };

  // record.cpp: events
  void record(hooks::Event& event);
  void record_or_report(hooks::Event& event);
  hooks::Tensors* tensors_of(hooks::Event& event) const;
  template <class Condition>
  bool asked(const Condition& condition) const;
  bool wanted(hooks::Event& event, const hooks::Tensors* tensors, const at::Tensor& first) const;
  bool take(hooks::Event& event, const hooks::Tensors* tensors, const at::Tensor& first);
  bool keep_event(c10::SmallVectorImpl<at::Tensor>& samples, std::int64_t first_slot, bool one);
  void count_kept() noexcept {
    ++recorded_;
    samples_.store(samples_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void stop_if_last() const;
  /// Throws unless the call holds the tensors to be recorded, also if a value of an unknown type may hold
  /// them.
  void check(const hooks::Tensors& tensors) const {
    const bool enough = options->all_tensors() ? !tensors.empty() || traits(kind).gradients
                                               : options->slot() < tensors.size();
    if (!enough || (tensors.has_unknown() && options->all_tensors())) say_what_lacks(tensors);
  }
  [[noreturn]] void say_what_lacks(const hooks::Tensors& tensors) const;
  bool leaves_out(const c10::Error& error);
  at::Tensor prepare(const at::Tensor& tensor) const;
  SlotData make_slot() const;

  // record_pair.cpp
  Pair& pair_of(const hooks::Event& event, std::optional<std::size_t> companion = {});
  void forget_sample(Pair& pair) noexcept;
  void refuse(hooks::Event& event);
  void take_with_companions(hooks::Event& event, const hooks::Tensors* tensors, const at::Tensor& first);
  at::Tensor kept_until_paired(const at::Tensor& sample, const at::Tensor& original) const;
  void fold_pair(const Pair& pair, c10::ArrayRef<at::Tensor> samples, bool prepared);

  // record_fold.cpp
  void fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared);
  void fold_in_turn(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared);
  void fold_own(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared);
  void fold_beside(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared,
                   ThreadSinks& others);
  void fold_together(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared);
  void open_thread_sinks(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot);
  SlotData& slot_to_fold(std::size_t index);
  /// Removes slots that were added for an event, if the event is not recorded.
  struct NewSlots {
    explicit NewSlots(std::vector<SlotData>& slots) : slots(slots), before(slots.size()) {}
    ~NewSlots() {
      if (!kept) slots.erase(slots.begin() + static_cast<std::ptrdiff_t>(before), slots.end());
    }
    NewSlots(const NewSlots&) = delete;
    NewSlots& operator=(const NewSlots&) = delete;

    std::vector<SlotData>& slots;
    const std::size_t before;
    bool kept = false;
  };
  ThreadSinks& thread_sinks();
  void settle() const;
  void merge_thread_sinks() const;
  std::int64_t forget_samples();
  [[nodiscard]] std::vector<SlotData> forget_rest();

  // record_device.cpp
  void check_capture(const at::Tensor& sample) const;
  void fold_from_device(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared);
  void update_apart(SlotData& slot, const at::Tensor& sample) const;
  void settle_devices() const;
  void settle_graphs() const noexcept;
  bool may_be_late(const at::Tensor& sample);
  void forget_devices();

  // record_keep.cpp
  bool keep_alike(const at::Tensor& sample, std::int64_t slot);
  bool keep(c10::SmallVectorImpl<at::Tensor>& samples, std::int64_t first_slot);
  void add_slots(std::int64_t count);
  bool within_budget(std::int64_t bytes);
  void move_to_spool();
  const at::Tensor& held_or_left_out(const at::Tensor& sample) const;
  static std::string why_not_held(const at::Tensor& tensor);
  std::optional<std::int64_t> spooled_slot(std::int64_t slot) const {
    return options->all_tensors() ? std::optional(slot) : std::nullopt;
  }
  void count_held() noexcept;

  // record_stream.cpp
  void stream_sample(hooks::Event& event);
  void stream_results(hooks::Event& event);
  void send(const at::Tensor& tensor, const StreamSample& sample, std::uint64_t receivers);

  // record_values.cpp and record_data.cpp
  RecordData copied() const;
  core::Value value_of(const SlotData& slot) const;
  core::Value value_of(const std::vector<SlotData>& slots) const;
  void join(std::vector<SlotData>& mine, const std::vector<SlotData>& theirs) const;

  std::weak_ptr<const torch::nn::Module> watched_;
  std::optional<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> parameter_;
  mutable std::mutex turn_;  // to call the transform; taken before `mutex_`
  mutable std::mutex mutex_;
  mutable std::vector<SlotData> slots_;  // one, or with all_tensors all slots seen so far
  mutable std::int64_t recorded_ = 0;    // samples in `slots_`, under the lock
  mutable std::atomic<std::int64_t> samples_{
      0};  // without the samples of thread sinks; written under the lock
  mutable std::vector<DeviceSlot> device_slots_;     // by slot, under the lock; as many as were needed
  std::atomic<bool> captured_{false};                // a graph adds samples
  std::unique_ptr<core::Accumulator::Batch> batch_;  // empty between events
  std::optional<hooks::Forwards> forwards_;          // whose end adds samples that wait
  bool may_wait_ = false;                            // not the first sample
  std::optional<Version> first_;               // of the first sample, where no end of its forward is seen
  std::atomic<bool> on_time_{false};           // a sample was changed in place, so none waits
  mutable std::atomic<std::int64_t> lost_{0};  // samples that were changed while they waited
  mutable EventCounts counts_;
  std::mutex pairing_mutex_;
  std::shared_ptr<const Pairing> pairing_;  // null without `RecorderOptions::with`; `replace` exchanges it
  const bool commutative_;                  // threads may have separate sinks
  const bool own_reduction_;                // it runs code of the program's
  const bool plain_;                        // commutative, and of torchtap's code alone
  const bool as_it_is_;  // a tensor is recorded as it comes, without transform, device and dtype
  const bool copied_;    // as it comes, into a copy, and without a budget
  const bool alone_;
  bool inside_hooks_ = false;                        // of its module, that were compiled into the file
  std::atomic<ThreadSinks*> thread_sinks_{nullptr};  // null until two threads record at the same time
  std::once_flag thread_sinks_once_;
  std::unique_ptr<ThreadSinks> thread_sinks_owner_;
  std::shared_ptr<Store> store_;
  std::int64_t module_ = -1;
  storage::Spool::Stream* stream_ = nullptr;  // where samples go; null while they are kept here
  std::shared_ptr<StreamSource> source_;      // null unless something is sent
  std::atomic<std::int64_t> seen_{0};         // events that might have been sent
  std::int64_t held_ = 0;                     // the bytes of this record in `Store::held`
};

}  // namespace torchtap::recorders::detail
