#pragma once

/// Attaches hooks to the forward and backward of modules, and removes them.

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/event.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torch::nn {
class AnyModule;
}

namespace torchtap::hooks {

namespace detail {
struct Hook;
struct ScopeHold;
}  // namespace detail

/// Called when a hook fires. It may replace tensors by assigning to them. An exception that it throws reaches
/// the caller of `forward` or `backward`. Several threads may call it at once.
using Callback = std::function<void(Event&)>;

/// Removes its hook when destroyed. Move-only; may outlive the module.
class [[nodiscard]] TORCHTAP_API Handle {
 public:
  Handle() noexcept = default;
  Handle(Handle&&) noexcept = default;
  Handle& operator=(Handle&& other) noexcept;
  ~Handle() { remove(); }

  /// Removes the hook; a second call does nothing. Calls already running in other threads may still finish
  /// the hook. Gradients that arrive later for earlier forwards are no longer reported.
  void remove() noexcept;
  /// Leaves the hook on the module for as long as that lives, as PyTorch's hooks stay whose handle is
  /// dropped. The handle is attached to nothing afterwards, and the hook cannot be removed.
  void release() noexcept;
  /// Whether the hook is attached and its module is alive.
  bool attached() const noexcept;

 private:
  friend Handle attach(const model::ModuleRef& module, Kind kind, Callback callback);
  /// For torchtap: programs get one from `attach`.
  Handle(std::shared_ptr<detail::Hook> hook, std::shared_ptr<detail::ScopeHold> scope) noexcept
      : hook_(std::move(hook)), scope_(std::move(scope)) {}

  std::shared_ptr<detail::Hook> hook_;
  std::shared_ptr<detail::ScopeHold> scope_;  // keeps the root's scope hook attached
};

/// Batches changes to the hooks of TorchScript modules: while it lives, this thread's changes are deferred,
/// and the model is compiled once instead of once per hook. Hooks of other modules take effect at once.
///
///     hooks::DeferredCompile batch;
///     for (const auto& module : modules) handles.push_back(hooks::attach(module, kind, callback));
///     batch.commit();
class [[nodiscard]] TORCHTAP_API DeferredCompile {
 public:
  DeferredCompile() noexcept;
  /// Commits, but swallows exceptions.
  ~DeferredCompile();
  DeferredCompile(const DeferredCompile&) = delete;
  DeferredCompile& operator=(const DeferredCompile&) = delete;

  /// Applies the deferred changes. Throws LibTorch's exception if it cannot compile the model.
  void commit();

 private:
  bool open_ = true;
};

/// Runs `callback` around every call of the module's forward, however it is reached, after the hooks that
/// were attached earlier.
///
/// Throws `c10::ValueError` and attaches nothing if `callback` is empty, or if the module has no forward or
/// cannot be reached; the message names its path, its type and the remedy. The names follow PyTorch's
/// `register_forward_hook` family.
TORCHTAP_API Handle attach(const model::ModuleRef& module, Kind kind, Callback callback);

/// Throws what `attach` would throw if one of several modules has no forward or cannot be reached. The
/// message says how many those are, and names some with their reasons.
TORCHTAP_API void check_reachable(const std::vector<model::ModuleRef>& modules);

/// The same as `attach` for a module outside of a model: one whose type opted in (`TORCHTAP_MODULE`,
/// `torchtap::nn::…`), or a `Sequential`.
TORCHTAP_API Handle attach(torch::nn::Module& module, Kind kind, Callback callback);

/// The same for the module inside an `AnyModule`.
TORCHTAP_API Handle attach(torch::nn::AnyModule& module, Kind kind, Callback callback);

/// The same for a whole TorchScript model; `method` may name a method other than `forward`. TorchScript
/// reports an exception from the callback as a `std::runtime_error` whose message contains the original one.
TORCHTAP_API Handle attach(const torch::jit::Module& module, Kind kind, Callback callback,
                           const std::string& method = "forward");

/// Any other callable: an error of the compiler that says what is wanted.
template <class Module, class Callable, class... Method,
          class = std::enable_if_t<!std::is_convertible_v<Callable, Callback>>>
Handle attach(Module&&, Kind, Callable&&, const Method&...) {
  static_assert(std::is_convertible_v<Callable, Callback>,
                "a hook is a callable void(torchtap::hooks::Event& event), which has path(), inputs() and "
                "outputs() for what PyTorch passes as module, input and output");
  return {};
}

}  // namespace torchtap::hooks
