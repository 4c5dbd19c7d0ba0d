#pragma once

// The recording that the agent makes in one process.

#include <ATen/core/ivalue.h>
#include <sys/types.h>
#include <torch/nn/module.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/selectors/selector.hpp>

#include "call_trail.hpp"
#include "config.hpp"
#include "fingerprinting.hpp"
#include "models.hpp"
#include "process_report.hpp"
#include "streaming.hpp"

namespace torch::jit {
struct Method;
}

namespace torchtap::tools::preload {

/// The recording of one process, from its first call of a module to its end. Thread-safe. A forked child does
/// not touch its parent's session and makes a new one: threads that the child lacks may hold the parent's
/// locks.
class Session {
 public:
  /// `parent`: the session of the parent of a forked process, which is left to the parent.
  explicit Session(const Config& config, Session* parent = nullptr);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Learns the paths of the descendants of `root`.
  void learn(const torch::nn::Module& root);
  /// Call for each module call. Attaches the recorder on the module's first call if it is selected. Returns
  /// true if it is the first module of all, or the first attached: then call `begin`.
  bool meet(torch::nn::Module& module);
  /// Call for each method of TorchScript that the program calls. Attaches to all modules that its code calls.
  bool meet(const torch::jit::Method& method);
  /// Tells the launcher that modules run, and waits for readers if any module is attached.
  void begin();
  void note(std::string text);
  /// A call, of a module or from outside into TorchScript, is over: publishes the recording if it is time to.
  void after_call() noexcept;
  /// The process ends: publishes what is left. What is called later is recorded as before, unless it returns
  /// true: fingerprints have ended.
  bool finish() noexcept;

  bool attached() const noexcept { return attached_ != 0; }
  std::uint64_t serial() const noexcept { return serial_; }
  pid_t process() const noexcept { return process_; }

  /// Held during a fork so that the child can take over the models.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static constexpr std::size_t kMost = 10000;

  using Script = c10::weak_intrusive_ptr<c10::ivalue::Object>;
  /// A module of TorchScript and the method that is recorded. The memory of a module that is gone is not used
  /// again as long as it is known.
  using ScriptKey = std::pair<const c10::ivalue::Object*, std::string>;

  /// Modules that replace one another and count as the same module.
  struct Slot {
    std::int64_t index = -1;  // in the recorder; -1 if not selected
    std::string path;
    const torch::nn::Module* module = nullptr;  // null for TorchScript
    ScriptKey script;
    std::function<bool()> is_free;  // whether the module is gone
  };
  struct Known {
    std::weak_ptr<const torch::nn::Module> owner;
    std::int64_t slot;
  };
  struct KnownScript {
    Script owner;
    std::int64_t slot = -1;
    bool called = false;  // by the program itself: calls inside of its code are known, too
  };

  bool meet_on_stack(const torch::nn::Module& module);
  std::int64_t find_slot(const std::string& kind, Trail& trail);
  std::int64_t first_free(const std::vector<std::int64_t>& slots, std::size_t from) const;
  void note_ran(const model::ModuleRef& module);
  bool has_room(const model::ModuleRef& module, std::size_t attached);
  void fail(const std::string& path, const std::exception_ptr& error);
  void attach(const std::vector<model::ModuleRef>& modules);
  hooks::Handle hook_end(const model::ModuleRef& module);
  void replace(const Slot& slot, const model::ModuleRef& module);
  void publish();
  storage::Entry entry(std::int64_t index) const;
  std::string compiled_in_note() const;
  std::vector<std::string> notes();
  void tell(bool ended);

  const Config config_;
  const pid_t process_;
  const std::uint64_t serial_;
  const selectors::Selector selector_;
  std::shared_ptr<Streaming> streaming_;                         // null unless samples or results are sent
  std::shared_ptr<Fingerprinting> prints_;                       // null unless fingerprints are written
  std::vector<std::unique_ptr<recorders::Recorder>> recorders_;  // one, or of fingerprints two
  std::vector<hooks::Handle> ends_;                              // of calls; by the recorder's index
  std::string reduction_;                                        // as the recorder describes it
  std::vector<std::int64_t> published_;                          // events that published entries have

  std::shared_mutex mutex_;
  Models models_;
  std::map<std::string, std::set<std::string>> compiled_in_;  // types whose calls cannot be seen, their paths
  std::unordered_map<const torch::nn::Module*, Known> met_;
  std::map<ScriptKey, KnownScript> met_scripts_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, std::vector<std::int64_t>> slots_of_;  // by kind and anchor
  std::unordered_map<std::string, int> numbers_;                         // of types outside of models
  std::unordered_set<std::type_index> on_stack_;
  std::map<std::string, std::int64_t> left_out_;  // by type: modules beyond the limit
  std::atomic<std::size_t> attached_{0};
  std::atomic<bool> done_{false};
  std::atomic<bool> has_news_{false};  // for the launcher

  Report report_;  // guarded by mutex_

  std::mutex notes_mutex_;
  std::map<std::string, std::string> errors_;
  std::vector<std::string> notes_;
};

}  // namespace torchtap::tools::preload
