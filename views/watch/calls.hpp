#pragma once

/// Reports the calls of a model's modules as they begin and end: trace, report and explorer watch a forward
/// by it.

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/extend/hook_point.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::views::watch {

/// Holds a function of autograd, whose type differs between LibTorch's versions.
using NodePtr = hooks::extend::NodePtr;

/// Hears of the calls of modules, in the thread that makes them. Modules have their places in the list that
/// is watched.
class CallListener {
 public:
  virtual ~CallListener() = default;
  /// A call begins. Calls inside of it have a greater `depth`.
  virtual void call_begins(std::size_t module, int depth, hooks::Event& event) = 0;
  /// A call returns. It is not called for a call that throws; `Nesting` knows when such a call has ended.
  virtual void call_ends(std::size_t module, hooks::Event& event) = 0;
};

/// Attaches to the modules that are wanted; by default to all that have a forward and can be reached. The
/// listener is held weakly. Throws as `hooks::attach` does; nothing is attached then.
TORCHTAP_API std::vector<hooks::Handle> watch_calls(const std::vector<model::ModuleRef>& modules,
                                                    const std::weak_ptr<CallListener>& listener,
                                                    const std::function<bool(std::size_t)>& wanted = {});

/// Knows which calls can be inside of which, so that a call that begins shows which open calls an exception
/// has ended.
class TORCHTAP_API Nesting {
 public:
  Nesting() = default;
  /// `modules` are a model's, the root first.
  explicit Nesting(const std::vector<model::ModuleRef>& modules);

  /// The modules that a call of the module can be inside of, the outermost first. A TorchScript module that
  /// several others share can be called inside of each.
  const std::vector<std::size_t>& around(std::size_t module) const { return around_[module]; }
  /// Whether a call that is still open cannot be around one of `module` that begins at `depth`.
  bool ended(std::size_t open, int open_depth, std::size_t module, int depth) const;

 private:
  bool scripted_ = false;
  std::vector<std::vector<std::size_t>> around_;
};

/// Whether `calls_here` counts calls of the module.
TORCHTAP_API bool counts(const model::ModuleRef& module);
/// The number of calls that this thread is in.
TORCHTAP_API int calls_here() noexcept;

}  // namespace torchtap::views::watch
