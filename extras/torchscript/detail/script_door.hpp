#pragma once

/// Runs hooks around the methods of TorchScript modules.
///
/// Instances share the code of their class. Operators are compiled into the functions of a class that has
/// hooked instances, at the beginning, at the end or both, as its hooks need; at run time they look up the
/// hooks of the object at hand. Only the optimised graph contains them, from which LibTorch makes executors
/// and which it inlines into callers. Saving, cloning and printing a model use the graph that was loaded.

#include <string>

#include <torchtap/hooks/extend/door.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::torchscript::detail {

/// The code of TorchScript modules. `settle` compiles what changed.
class ScriptDoors final : public hooks::extend::DoorKind {
 public:
  /// One method of the module: an address inside the object. No other object gets it as long as the door is
  /// open, even if the object dies.
  const void* key_of(const model::ModuleRef& module) const override;
  void open(const model::ModuleRef& module, const std::string& named,
            hooks::extend::OpenDoors& doors) override;
  void settle() override;
};

}  // namespace torchtap::torchscript::detail
