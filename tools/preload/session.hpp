#pragma once

#include <sys/types.h>
#include <torch/nn/module.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/selectors/selector.hpp>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "config.hpp"
#include "report.hpp"
#include "trail.hpp"

namespace torchtap::preload {

/// The models of a program, as far as it has shown them, and where modules stand in them.
struct Places {
  struct Place {
    std::weak_ptr<const torch::nn::Module> owner;
    std::string path;
    std::vector<std::string> aliases;
    std::size_t tree = 0;  // how many modules its root has
  };
  std::unordered_map<const torch::nn::Module*, Place> known;
  std::map<std::string, std::set<std::string>> compiled_in;  // types that cannot be seen, and their paths
};

/// What one process records, from its first call of a module to its end. Thread-safe. A child made by fork
/// leaves its parent's untouched and makes another one: locks of the former may be held by threads that the
/// child does not have.
class Session {
 public:
  Session(const Config& config, Places places);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Remembers where the descendants of `root` stand; a larger tree knows better than a smaller one.
  void learn(const torch::nn::Module& root);
  /// A module is called; attaches to it the first time, if it is one of those asked for. True if it is the
  /// first of all.
  bool meet(torch::nn::Module& module);
  /// Tells the launcher that there will be a recording.
  void begin();
  /// TorchScript ran.
  void note_script() noexcept { uses_script_ = true; }
  void note(std::string text);
  /// Saves what was recorded so far.
  void snapshot() noexcept;
  /// Saves all of it, once; whoever comes second waits for the first.
  void finish() noexcept;

  bool attached() const noexcept { return attached_ != 0; }
  std::uint64_t serial() const noexcept { return serial_; }
  pid_t process() const noexcept { return process_; }

  /// Held while the process forks, so that the child can take the places over.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  /// In the child, of the parent's: takes the hooks off and hands over what it knew of the models.
  Places leave_to_child() noexcept;

 private:
  static constexpr std::size_t kMost = 10000;

  /// Modules that are one after the other the same one to the program.
  struct Slot {
    std::int64_t index = -1;  // in the recorder; -1 if nobody asked for it
    std::string path;
    const torch::nn::Module* module = nullptr;
    std::weak_ptr<const torch::nn::Module> owner;
  };
  struct Known {
    std::weak_ptr<const torch::nn::Module> owner;
    std::int64_t slot;
  };

  void meet_on_stack(const torch::nn::Module& module);
  std::int64_t find_slot(const std::string& kind, const std::string& path, Trail& trail);
  void fail(const std::string& path, const std::exception_ptr& error);
  void save(const std::vector<storage::Entry>& entries);
  std::vector<std::string> notes();
  void tell(bool ended);

  const Config config_;
  const pid_t process_;
  const std::uint64_t serial_;
  const selectors::Selector selector_;
  std::unique_ptr<recorders::Recorder> recorder_;

  std::shared_mutex mutex_;
  Places places_;
  std::unordered_map<const torch::nn::Module*, Known> met_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, std::vector<std::int64_t>> slots_of_;  // by kind and anchor
  std::unordered_map<std::string, int> numbers_;                         // of types outside of models
  std::unordered_set<std::type_index> on_stack_;
  std::map<std::string, std::int64_t> left_out_;  // types of modules that there was no room for
  std::atomic<std::size_t> attached_{0};
  std::atomic<bool> uses_script_{false};
  std::atomic<bool> done_{false};

  std::mutex saving_;
  bool owns_directory_;    // it is the program itself, and nothing of it was saved before
  std::string directory_;  // where it was saved last; empty if it was not
  Report report_;          // guarded by mutex_

  std::mutex notes_mutex_;
  std::map<std::string, std::string> errors_;
  std::vector<std::string> notes_;
};

}  // namespace torchtap::preload
