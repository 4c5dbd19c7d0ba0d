#pragma once

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
#include <torchtap/recorders/detail/sample_list.hpp>
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

  Record(Source source, std::shared_ptr<const Options> options, const core::ModuleRef& module);

  const std::string path;
  const std::vector<std::string> aliases;
  const std::string type;
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

  std::int64_t samples() const noexcept { return samples_.load(); }
  std::int64_t events() const noexcept { return samples_.load() + refused_.load(); }
  core::Value value() const;
  core::State state() const;
  /// The reductions, slot by slot, with what they have seen; nothing unless all of them can be saved.
  std::vector<core::SavedSink> saved() const;
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
  };
  Data data() const;
  void put(Data data);
  /// Throws, with nothing changed, if the two do not go together.
  Data merged(const Record& other) const;
  void save(core::OutputArchive& archive) const;
  /// Reads what `save` wrote, without putting it in place.
  Data load(core::InputArchive& archive) const;

 private:
  void record(hooks::Event& event);
  void record_or_report(hooks::Event& event);
  void take(const at::Tensor& tensor, std::size_t slot);
  Slot make_slot() const;
  core::Value value_of(const Slot& slot) const;
  core::Value value_locked() const;

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;               // one, or with all_tensors as many as were seen
  std::atomic<std::int64_t> samples_{0};  // written under the lock
  std::atomic<std::int64_t> refused_{0};  // events that were not recorded
};

const char* name_of(Record::Source source) noexcept;

}  // namespace torchtap::recorders::detail
