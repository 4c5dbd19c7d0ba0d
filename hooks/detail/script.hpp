#pragma once

#include <memory>
#include <torchtap/hooks/detail/hook_point.hpp>
#include <torchtap/model/module_ref.hpp>

/// Hooks on TorchScript modules.
///
/// A module's class has the code, and instances share it. Two operators are compiled into the functions of a
/// class that has hooked instances, `torchtap::enter` at the beginning and `torchtap::leave` at the end; at
/// run time they look for hooks of the object at hand. They stand in the optimised graph alone, from which
/// executors are made and which is inlined into callers: what is saved, cloned or printed of a model is the
/// graph that was loaded.
namespace torchtap::hooks::detail {

struct InterposedEntry;

/// Where the hooks of one TorchScript module, for one of its methods, are met. Made and destroyed under the
/// registry's lock; `compile_scripts` makes it take effect.
class ScriptDoor {
 public:
  explicit ScriptDoor(const model::ModuleRef& module);
  ~ScriptDoor();
  ScriptDoor(const ScriptDoor&) = delete;
  ScriptDoor& operator=(const ScriptDoor&) = delete;

  Gate& gate() const noexcept;
  /// Whether the module is gone.
  bool expired() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What tells methods of TorchScript modules apart: an address inside of the object. It stays the object's as
/// long as the door exists, even if the object dies.
const void* script_key(const model::ModuleRef& module);

/// Brings the code of all TorchScript models in line with the doors that there are. Under the registry's
/// lock.
void compile_scripts();

}  // namespace torchtap::hooks::detail
