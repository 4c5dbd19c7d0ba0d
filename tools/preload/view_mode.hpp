#pragma once

// The interface of the agent's views: trace, report, explorer and monitor.

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "agent.hpp"
#include "config.hpp"
#include "process_report.hpp"
#include "terminal/message.hpp"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Method;
}

namespace torchtap::tools::preload {

/// A view that the agent feeds instead of a recording: a trace or a report. Thread-safe. Members that run in
/// the program's calls throw `std::exception`s only for the agent to note.
class Mode {
 public:
  explicit Mode(const Config& config) : config_(config), serial_(generation()) { tell(false); }
  virtual ~Mode() = default;
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;

  /// The program asked a model for its parameters or modules, or set its mode.
  virtual void found_root(const torch::nn::Module& root) = 0;
  /// A module is about to run in this thread.
  virtual void called(torch::nn::Module& module) = 0;
  /// A function of a backward begins, or ends, in this thread.
  virtual void backward(bool begins) = 0;
  /// Whether operations of a backward are hidden from this mode's scopes.
  virtual bool hides_backward() const noexcept = 0;
  /// Whether it wants to see the next call of TorchScript.
  virtual bool waits_for_script() const noexcept = 0;
  /// Calls `original`, the body of a method of TorchScript.
  virtual c10::IValue script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                             const std::function<c10::IValue()>& original) = 0;
  /// The process ends.
  virtual void finish() noexcept = 0;
  /// The state that a forked child continues with. This one stays locked, as another thread than the child's
  /// locked it.
  virtual Mode* for_child() = 0;

  /// A sentence for the launcher.
  void note(const std::string& text) {
    const Lock lock(mutex_);
    auto& notes = report_.notes;
    if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
    tell(false);
  }
  /// Publishes what is known of the program's models, if that is more than before.
  void tell_news() {
    const Lock lock(mutex_);
    if (std::exchange(told_, report_.compiled_in.size()) != report_.compiled_in.size()) tell(false);
  }
  /// Around a fork, in the parent.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 protected:
  using Lock = std::lock_guard<std::recursive_mutex>;

  void tell(bool ended) { preload::tell(report_, ended); }
  /// Runs torchtap's own work, whose failure the program must not notice.
  template <class Function>
  void guarded(Function&& function) noexcept {
    try {
      function();
    } catch (const std::exception& error) {
      note(tools::message_of(error));
    }
  }

  std::recursive_mutex mutex_;
  const Config config_;
  const std::uint64_t serial_;  // of the process; its hooks are left behind in a child
  Report report_;

 private:
  std::size_t told_ = 0;
};

}  // namespace torchtap::tools::preload
