#pragma once

/// Runs hooks around the methods of TorchScript modules.
///
/// Instances share the code of their class. Operators are compiled into the functions of a class that has
/// hooked instances, at the beginning, at the end or both, as its hooks need; at run time they look up the
/// hooks of the object at hand. Only the optimised graph contains them, from which LibTorch makes executors
/// and which it inlines into callers. Saving, cloning and printing a model use the graph that was loaded.

#include <memory>

#include <torchtap/hooks/detail/hook_point.hpp>
#include <torchtap/hooks/detail/script_call.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::hooks::detail {

struct InterposedEntry;

/// The hooks of one TorchScript module for one of its methods. Made and destroyed under the registry's lock;
/// `compile_scripts` makes it take effect.
class ScriptDoor {
 public:
  explicit ScriptDoor(const model::ModuleRef& module);
  ~ScriptDoor();
  ScriptDoor(const ScriptDoor&) = delete;
  ScriptDoor& operator=(const ScriptDoor&) = delete;

  /// Call whenever the hooks change: they see these sides of each call.
  void show(Sides sides) noexcept;
  Gate& gate() const noexcept;
  /// Whether the module was destroyed.
  bool expired() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Identifies one method of a TorchScript module: an address inside the object. No other object gets it as
/// long as the ScriptDoor exists, even if the object dies.
const void* script_key(const model::ModuleRef& module);

/// Recompiles the code of all TorchScript models to match the existing ScriptDoors. Call under the registry's
/// lock.
void compile_scripts();

}  // namespace torchtap::hooks::detail
