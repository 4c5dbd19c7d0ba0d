#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/trace/tracer.hpp>

#include "../message.hpp"
#include "config.hpp"
#include "report.hpp"

namespace torch::jit {
struct Method;
}

namespace torchtap::preload {

/// Logs the first forward pass of a process (`torchtap preload --trace`).
///
/// Of TorchScript that is the first call of a method from C++. The forward of a C++ model is compiled into
/// the program, so where it begins and ends has to be guessed. It begins when the first of the modules is
/// called that can be seen, and ends when
///
/// - a backward begins;
/// - the program does to the model what is done between passes (`train`, `eval`, `parameters`);
/// - the module that was called first is called again, after all that can be seen have been, with tensors
/// that
///   the pass did not compute;
/// - `kMost` operations ran, or the process ends.
class Trace {
 public:
  explicit Trace(const Config& config);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// The program asked a model for its parameters or modules, or set its mode.
  void found_root(const torch::nn::Module& root);
  /// A module is about to run in this thread.
  void called(torch::nn::Module& module);
  /// A function of a backward runs in this thread.
  void backward();
  /// Calls `original`, the body of a method of TorchScript, and logs it if it is the first.
  c10::IValue script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                     const std::function<c10::IValue()>& original);
  /// The process ends.
  void finish() noexcept;
  /// Whether no pass has begun yet; whether one is being logged.
  bool waiting() const noexcept { return state_ == State::waiting; }
  bool logging() const noexcept { return state_ == State::logging; }
  /// A sentence for the launcher.
  void note(const std::string& text);

  /// Around a fork, in the parent.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  /// What a forked child goes on with: it logs a pass of its own, unless one had begun. This one stays
  /// locked, as the child's thread is not the one that locked it.
  Trace* for_child();

 private:
  enum class State { waiting, logging, done };
  static constexpr std::int64_t kMost = 100000;

  views::trace::Options options() const;
  void begin(torch::nn::Module& module);
  void take_inputs(const hooks::Event& event);
  bool begins_again(const hooks::Event& event) const;
  void follow(operations::Event& event);
  bool reads_computed(const operations::Event& event);
  void add_computed(const at::Tensor& tensor);
  std::shared_ptr<views::trace::Tracer> begin_script(const torch::jit::Method& method,
                                                     const std::vector<c10::IValue>& arguments);
  void end_script(views::trace::Tracer& tracer, const std::string& error);
  void end();
  views::trace::History finished();
  void save(views::trace::History history);
  void tell(bool ended);

  /// What `function` returns; false if it throws, which the program must not notice.
  template <class Function>
  bool guarded(Function&& function) noexcept {
    try {
      return function();
    } catch (const std::exception& error) {
      note(tools::message_of(error));
    }
    return false;
  }

  std::recursive_mutex mutex_;
  const Config config_;
  std::atomic<State> state_{State::waiting};
  std::shared_ptr<views::trace::Tracer> tracer_;
  /// The modules of the model whose calls can be seen; those that were called are removed.
  std::unordered_map<const torch::nn::Module*, model::ModuleRef> uncalled_;
  std::size_t tree_ = 0;  // modules of the model

  // Of the pass that is being logged.
  std::thread::id thread_;
  hooks::Handle first_;  // on the module that was called first
  bool has_inputs_ = false;
  std::unique_ptr<operations::Scope> scope_;
  /// The memory of its inputs, and of what was computed from them.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> computed_;
  std::int64_t operations_ = 0;
  Report report_;
};

}  // namespace torchtap::preload
