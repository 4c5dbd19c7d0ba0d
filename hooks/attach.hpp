#pragma once

/// Attaches hooks to the forward and backward of modules, and removes them.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/event.hpp>
#include <torchtap/model/extend/module_in.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/model/walk.hpp>

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

/// Called in the forward if it is known there that a gradient cannot be reported: with an event that has a
/// `slot()` and no gradient, and with the reason. What it throws reaches the caller of `forward`.
using LeftOut = std::function<void(const Event&, const std::string& why)>;

/// The place of a hook among the hooks of its module that run at the same time.
enum class Place {
  /// Behind existing hooks: hooks run in the order of attachment.
  last,
  /// Before existing hooks, as with PyTorch's `prepend=True`. Among several, the last attached runs first.
  first,
};

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
  friend Handle attach(const model::ModuleRef& module, Kind kind, Callback callback, LeftOut left_out,
                       Place place);
  friend Handle attach(const model::ModuleRef& module, const std::string& parameter, Callback callback);
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
  [[nodiscard]] DeferredCompile() noexcept;
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
/// were attached earlier, or before them (`place`).
///
/// Throws `c10::ValueError` and attaches nothing if `callback` is empty, if the module has no forward or
/// cannot be reached, or if `kind` is `Kind::backward_parameter`, which needs the name of a parameter; the
/// message names its path, its type and the remedy. The names follow PyTorch's `register_forward_hook`
/// family.
TORCHTAP_API Handle attach(const model::ModuleRef& module, Kind kind, Callback callback,
                           Place place = Place::last);
/// The same for a gradient, and calls `left_out` instead where it cannot be reported (see the kinds). Without
/// `left_out` nothing is called then.
TORCHTAP_API Handle attach(const model::ModuleRef& module, Kind kind, Callback callback, LeftOut left_out,
                           Place place = Place::last);

/// Runs `callback` with each gradient of the module's own parameter called `parameter` ("weight"):
/// `Kind::backward_parameter`. The module need not be reachable, and it may have no forward.
///
/// The hook belongs to the tensor: it stays when that moves to another device or gets other data, and not
/// when the module gets another tensor in its place. A parameter that requires no gradient has none to
/// report until it does. `torch::autograd::grad` gives gradients to its caller and not to parameters: from
/// 2.0 on LibTorch calls the hooks of the parameters that it was asked for, and 1.13 calls none.
///
/// As with LibTorch's own hooks, no backward may go through the parameter in another thread while its hooks
/// are attached or removed.
///
/// Throws `c10::ValueError` if `callback` is empty, if the module has no such parameter or is one of an
/// exported model, and `c10::NotImplementedError` if Python's hooks are on the tensor.
TORCHTAP_API Handle attach(const model::ModuleRef& module, const std::string& parameter, Callback callback);

/// Throws as `attach` would if one of several modules has no forward or cannot be reached. The message says
/// how many modules fail, and names some with their reasons.
TORCHTAP_API void check_reachable(const std::vector<model::ModuleRef>& modules);

/// Attaches to a module outside of a model: its type opted in (`TORCHTAP_MODULE`, `torchtap::nn::…`), or it
/// is a `Sequential`.
TORCHTAP_API Handle attach(torch::nn::Module& module, Kind kind, Callback callback,
                           Place place = Place::last);
/// Attaches to a parameter of a module outside of a model.
TORCHTAP_API Handle attach(torch::nn::Module& module, const std::string& parameter, Callback callback);

/// Attaches to the module inside an `AnyModule`.
TORCHTAP_API Handle attach(torch::nn::AnyModule& module, Kind kind, Callback callback,
                           Place place = Place::last);

/// Attaches to a whole TorchScript model; `method` may name a method other than `forward`. TorchScript
/// reports an exception from the callback as a `std::runtime_error` whose message contains the original one.
TORCHTAP_API Handle attach(const torch::jit::Module& module, Kind kind, Callback callback,
                           const std::string& method = "forward", Place place = Place::last);
/// Attaches to its forward, at a place.
inline Handle attach(const torch::jit::Module& module, Kind kind, Callback callback, Place place) {
  return attach(module, kind, std::move(callback), "forward", place);
}
/// Attaches to a parameter of a TorchScript module.
TORCHTAP_API Handle attach(const torch::jit::Module& module, const std::string& parameter, Callback callback);

namespace detail {

/// Whether a callable is a hook: it is called with an event and returns nothing.
template <class Callable>
constexpr bool is_hook() {
  if constexpr (!std::is_convertible_v<Callable, Callback>) {
    return false;
  } else if constexpr (std::is_invocable_v<std::decay_t<Callable>&, Event&>) {
    return std::is_void_v<std::invoke_result_t<std::decay_t<Callable>&, Event&>>;
  } else {
    return true;  // null, which is an error when it is attached
  }
}

/// Whether hooks are attached to a `T`.
template <class T>
inline constexpr bool is_module_v =
    model::extend::is_model_v<T> || std::is_convertible_v<T&, const model::ModuleRef&> ||
    std::is_convertible_v<T&, torch::nn::AnyModule&>;

}  // namespace detail

/// Attaches to the module in a holder or behind a `std::shared_ptr`, outside of a model. Throws
/// `c10::ValueError` if it is empty.
template <class Holder, class Callable,
          class = std::enable_if_t<model::extend::holds_module_v<Holder> && detail::is_hook<Callable>()>>
Handle attach(const Holder& module, Kind kind, Callable&& callback, Place place = Place::last) {
  return attach(static_cast<torch::nn::Module&>(model::extend::module_in(module)), kind,
                Callback(std::forward<Callable>(callback)), place);
}
/// Attaches to a parameter of the module in a holder or behind a `std::shared_ptr`.
template <class Holder, class Callable,
          class = std::enable_if_t<model::extend::holds_module_v<Holder> && detail::is_hook<Callable>()>>
Handle attach(const Holder& module, const std::string& parameter, Callable&& callback) {
  return attach(static_cast<torch::nn::Module&>(model::extend::module_in(module)), parameter,
                Callback(std::forward<Callable>(callback)));
}
/// Attaches to a whole model that lists its modules itself, as `exported::Model` does.
template <
    class Model, class Callable,
    class = std::enable_if_t<model::extend::lists_modules_v<const Model> && detail::is_hook<Callable>()>,
    class = void>
Handle attach(const Model& model, Kind kind, Callable&& callback, Place place = Place::last) {
  return attach(model::find(model, ""), kind, Callback(std::forward<Callable>(callback)), place);
}
/// Attaches to the module at `path` of a model, as `model::find` finds it:
/// `attach(net, "layer1.0", Kind::forward_output, hook)`.
template <class Model, class Callable,
          class = std::enable_if_t<model::extend::is_model_v<std::remove_reference_t<Model>> &&
                                   detail::is_hook<Callable>()>>
Handle attach(Model&& model, const std::string& path, Kind kind, Callable&& callback,
              Place place = Place::last) {
  return attach(model::find(model, path), kind, Callback(std::forward<Callable>(callback)), place);
}
/// 0 is no name.
template <class Model, class... Rest>
Handle attach(Model&& model, std::nullptr_t name, Rest&&... rest) = delete;

/// Anything else: an error of the compiler that says what is wanted.
template <class Module, class Callable, class... Rest,
          class = std::enable_if_t<!detail::is_module_v<std::remove_reference_t<Module>> ||
                                   !detail::is_hook<Callable>()>>
Handle attach(Module&&, Kind, Callable&&, const Rest&...) {
  static_assert(detail::is_module_v<std::remove_reference_t<Module>>,
                "attach needs a module: a torch::nn::Module&, its holder or std::shared_ptr (of another "
                "pointer what it points to, and not const), a torch::jit::Module, a torch::nn::AnyModule, or "
                "what model::find and a walk return");
  static_assert(std::is_convertible_v<Callable, Callback>,
                "a hook is a callable void(torchtap::hooks::Event& event), which has path(), inputs() and "
                "outputs() for what PyTorch passes as module, input and output");
  static_assert(!std::is_convertible_v<Callable, Callback> || detail::is_hook<Callable>(),
                "a hook returns nothing: assign what PyTorch's hooks return, as in event.outputs()[0] = … "
                "(or inputs(), or gradient())");
  return {};
}
/// The same with a path.
template <class Model, class Callable, class... Rest,
          class = std::enable_if_t<!model::extend::is_model_v<std::remove_reference_t<Model>> ||
                                   !detail::is_hook<Callable>()>>
Handle attach(Model&& model, const std::string& path, Kind kind, Callable&& callback, const Rest&... rest) {
  return attach(model::find(model, path), kind, std::forward<Callable>(callback), rest...);
}

}  // namespace torchtap::hooks
