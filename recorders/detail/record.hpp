#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torchtap/core/archive.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/detail/lanes.hpp>
#include <torchtap/recorders/detail/sample_list.hpp>
#include <torchtap/recorders/detail/store.hpp>
#include <torchtap/recorders/options.hpp>
#include <vector>

namespace torchtap::recorders::detail {

class Record;

/// While `Recorder::until_recorded` runs in this thread: which records are still waited for.
struct Awaited {
  std::vector<const Record*> records;
  Awaited* outer = nullptr;
};
/// Ends a forward from inside a hook. Not an exception type of the library's: nobody but `until_recorded`
/// catches it.
struct StopForward {
  const Awaited* awaited;
};
Awaited*& awaited_in_this_thread() noexcept;

/// What one subrecorder holds, shared with its hook, so that both may go first.
class Record {
 public:
  enum class Source { forward_pre, forward_input, forward_output, backward_input, backward_output };

  /// `alone`: this module and no other was asked for.
  Record(Source source, std::shared_ptr<const Options> options, const model::ModuleRef& module, bool alone);
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record();
  /// To be called once, before the first event.
  void store_in(std::shared_ptr<Store> store);

  const storage::EntryId id;
  const Source source;
  const std::shared_ptr<const Options> options;

  /// The hook's body.
  void on_event(hooks::Event& event) {
    if (options->on_error() == nullptr) {
      record(event);
    } else {
      record_or_report(event);
    }
  }

  /// Of a recorder of gradients, during the forward: throws if the tensors whose gradients it is to record
  /// are in a value of an unknown type, where none would ever arrive.
  void on_forward(const hooks::Tensors& tensors);

  std::int64_t samples() const noexcept { return samples_.load(); }
  std::int64_t events() const noexcept {
    return samples_.load() + refused_.load() + without_tensors() + dropped();
  }
  /// Events that had nothing to record.
  std::int64_t without_tensors() const noexcept { return without_tensors_.load(); }
  /// Events that were left out for want of room.
  std::int64_t dropped() const noexcept { return dropped_.load(); }
  /// Moves what is in memory to the spool, if there is one by now. Null if there is none.
  storage::Spool::Stream* spooled() const;
  /// Throws if samples are spooled.
  void refuse_spooled(const char* call) const;
  /// Its place in the store.
  std::int64_t module() const noexcept { return module_; }
  core::Value value() const;
  core::Results results() const;
  /// The reductions, slot by slot, with what they have seen; nothing unless all of them can be saved.
  std::vector<core::SavedSink> saved() const;
  /// All of that, for a file.
  storage::Entry entry() const;
  std::int64_t slots() const;
  core::Value slot(std::int64_t index) const;
  void set(const core::Value& value);
  void apply(const std::function<at::Tensor(const at::Tensor&, std::int64_t)>& function);
  void reset();

  /// "ForwardOutput "layer1" (Conv2d)": how messages begin.
  std::string describe() const;

  /// The data alone, apart from its owner, so that merging and restoring can be prepared and then put in
  /// place.
  struct Slot {
    std::unique_ptr<core::Sink> sink;  // null where every sample is kept
    SampleList list;
    std::optional<core::Value> fixed;  // set by the user in place of what the sink has
    Slot clone() const;
  };
  struct Data {
    std::vector<Slot> slots;
    std::int64_t samples = 0;
    std::int64_t refused = 0;
    std::int64_t without_tensors = 0;
  };
  Data data() const;
  void put(Data data);
  /// Throws if `merge` would.
  void check_merge(const Data& theirs) const;
  /// Adds what another record has seen to whatever is here by now.
  void merge(const Data& theirs);
  void save(core::OutputArchive& archive) const;
  /// Reads what `save` wrote, without putting it in place.
  Data load(core::InputArchive& archive) const;

 private:
  void record(hooks::Event& event);
  void record_or_report(hooks::Event& event);
  void stop_if_last() const;
  void check(const hooks::Tensors& tensors) const;
  void fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot);
  void fold_in_turn(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot);
  void fold_together(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot);
  void open_lane(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot);
  Slot& slot_to_fold(std::size_t index);
  struct NewSlots;
  Lanes& lanes();
  void merge_lanes() const;
  void join(std::vector<Slot>& mine, const std::vector<Slot>& theirs) const;
  at::Tensor prepare(const at::Tensor& tensor) const;
  bool as_it_is() const noexcept;
  bool keep(c10::SmallVectorImpl<at::Tensor>& samples, std::int64_t first_slot);
  bool within_budget(std::int64_t bytes);
  void move_to_spool();
  void count_held() noexcept;
  Slot make_slot() const;
  core::Value value_of(const Slot& slot) const;
  core::Value value_locked() const;

  mutable std::mutex mutex_;
  mutable std::vector<Slot> slots_;       // one, or with all_tensors as many as were seen
  std::atomic<std::int64_t> samples_{0};  // written under the lock, or that of a lane
  std::atomic<std::int64_t> refused_{0};  // events that were not recorded
  std::atomic<std::int64_t> dropped_{0};  // for want of room
  std::atomic<std::int64_t> without_tensors_{0};
  const bool commutative_;  // so threads may have lanes
  const bool alone_;
  std::atomic<Lanes*> lanes_{nullptr};  // null until two threads meet
  std::once_flag lanes_once_;
  std::unique_ptr<Lanes> lanes_owner_;
  std::shared_ptr<Store> store_;
  std::int64_t module_ = -1;
  storage::Spool::Stream* stream_ = nullptr;  // where samples go; null while they are kept here
  std::int64_t held_ = 0;                     // what this record has added to `Store::held`
};

const char* name_of(Record::Source source) noexcept;

}  // namespace torchtap::recorders::detail
