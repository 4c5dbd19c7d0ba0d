#pragma once

// The interface of the agent's views: trace, report, explorer and monitor.

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

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
  virtual ~Mode() = default;

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
  /// Whether there is anything to save.
  virtual bool recording() const noexcept = 0;
  /// Saves in between, if it can.
  virtual void snapshot() noexcept = 0;
  /// The process ends.
  virtual void finish() noexcept = 0;
  /// A sentence for the launcher.
  virtual void note(const std::string& text) = 0;

  /// Around a fork, in the parent.
  virtual void lock() = 0;
  virtual void unlock() = 0;
  /// The state that a forked child continues with. This one stays locked, as another thread than the child's
  /// locked it.
  virtual Mode* for_child() = 0;

 protected:
  /// Runs torchtap's own work, whose failure the program must not notice.
  template <class Function>
  void guarded(Function&& function) noexcept {
    try {
      function();
    } catch (const std::exception& error) {
      note(tools::message_of(error));
    }
  }
};

}  // namespace torchtap::tools::preload
