#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torchtap/core/api.hpp>
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

/// What runs when a hook fires. It may replace tensors by assigning to them, and may throw: the exception
/// reaches the caller of `forward` or `backward`. It can be called from several threads at once.
using Callback = std::function<void(Event&)>;

/// Removes its hook when destroyed. Move-only; harmless if the module died first.
class [[nodiscard]] TORCHTAP_API Handle {
 public:
  Handle() noexcept = default;
  Handle(Handle&&) noexcept = default;
  Handle& operator=(Handle&& other) noexcept;
  ~Handle() { remove(); }

  /// Removes the hook; calling it again does nothing. A call that another thread has begun may still run the
  /// hook to its end. Gradients that arrive later for a forward that ran before are not reported any more.
  void remove() noexcept;
  /// Whether the hook is still on a living module.
  bool attached() const noexcept;

 private:
  friend Handle attach(const model::ModuleRef& module, Kind kind, Callback callback);
  /// Made by `attach`.
  Handle(std::shared_ptr<detail::Hook> hook, std::shared_ptr<detail::ScopeHold> scope) noexcept
      : hook_(std::move(hook)), scope_(std::move(scope)) {}

  std::shared_ptr<detail::Hook> hook_;
  std::shared_ptr<detail::ScopeHold> scope_;  // keeps the root marking its forwards
};

/// For attaching and removing many hooks of TorchScript modules: while it lives, this thread's changes are
/// put off, and the model is compiled anew once and not each time. Other modules need none.
///
///     hooks::DeferredCompile batch;
///     for (const auto& module : modules) handles.push_back(hooks::attach(module, kind, callback));
///     batch.commit();
class [[nodiscard]] TORCHTAP_API DeferredCompile {
 public:
  DeferredCompile() noexcept;
  /// As `commit`, without an exception.
  ~DeferredCompile();
  DeferredCompile(const DeferredCompile&) = delete;
  DeferredCompile& operator=(const DeferredCompile&) = delete;

  /// Brings hooks into effect, or out of it. Throws what LibTorch throws if it cannot compile the model.
  void commit();

 private:
  bool open_ = true;
};

/// Runs `callback` around every call of `module`, whichever way `forward` is reached, after the hooks that
/// were attached to it before.
///
/// Throws `c10::ValueError` for a module that cannot be reached, naming its path and type and what would make
/// it reachable; nothing is attached then. The names follow PyTorch's `register_forward_hook` family.
TORCHTAP_API Handle attach(const model::ModuleRef& module, Kind kind, Callback callback);

/// The same for a module without a model around it: one whose type opted in (`TORCHTAP_MODULE`,
/// `torchtap::nn::…`), or a `Sequential`.
TORCHTAP_API Handle attach(torch::nn::Module& module, Kind kind, Callback callback);

/// The same for what an `AnyModule` holds.
TORCHTAP_API Handle attach(torch::nn::AnyModule& module, Kind kind, Callback callback);

/// The same for a TorchScript model as a whole, and for another of its methods than `forward`. An exception
/// that the callback throws reaches the caller as TorchScript reports all of them, as a `std::runtime_error`
/// with the message in it.
TORCHTAP_API Handle attach(const torch::jit::Module& module, Kind kind, Callback callback,
                           const std::string& method = "forward");

}  // namespace torchtap::hooks
