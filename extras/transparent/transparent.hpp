#pragma once

/// A program needs no more than linking torchtap::transparent; this header is for checking the result, and
/// for hooks on every module of the program.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/hooks/event.hpp>

namespace torch::nn {
class Module;
}

namespace torchtap::transparent {

/// The calls that cannot be seen in this program and why, one sentence each; empty if all can. Calls a
/// LibTorch module from within LibTorch to find out. Cheap after the first call; thread-safe.
std::vector<std::string> check();

/// A hook on every module that is called while it lives, whether it exists already or is made later, as
/// PyTorch's `register_module_forward_hook`.
///
///     transparent::EveryModule hook(hooks::Kind::forward, [](torch::nn::Module& module, hooks::Event& event) {
///       …
///     });
///
/// It is attached to a module at the first call, before the hooks that are there, and runs in that call, too;
/// `event.path()` is empty, as a call does not know its model, and `call_index()` is 0.
///
/// It sees the calls that torchtap::transparent sees in this program (`check`), of modules that a
/// `std::shared_ptr` owns. These it does not see: a `Sequential` itself, whose entries it sees; types
/// declared with TORCHTAP_MODULE; TorchScript. `missed` names those it met. Attach to them.
class [[nodiscard]] EveryModule {
 public:
  /// Called as a `hooks::Callback`, with the module. Several threads may call it at once.
  using Callback = std::function<void(torch::nn::Module& module, hooks::Event& event)>;

  /// Begins. Throws `c10::ValueError` if the callback is empty, for `Kind::backward_parameter`, which needs
  /// no call (attach a `recorders::BackwardParameter` to the model), and if no call can be seen in this
  /// program.
  EveryModule(hooks::Kind kind, Callback callback);
  /// Removes the hook from all modules. Calls already running in other threads may still finish it.
  ~EveryModule();
  EveryModule(const EveryModule&) = delete;
  EveryModule& operator=(const EveryModule&) = delete;

  /// The types of modules that were called and could not be hooked, each with the reason.
  std::vector<std::string> missed() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace torchtap::transparent
