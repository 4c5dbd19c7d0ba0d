#pragma once

/// Lets the part torchscript tell the kernel of TorchScript models.

#include <functional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::model::extend {

/// What the part torchscript knows of TorchScript models.
class TORCHTAP_API ScriptModels {
 public:
  /// See `walk_modules` and, where `recursive` is false, `walk_children`.
  virtual std::vector<ModuleRef> walk(const torch::jit::Module& root, const std::string& method,
                                      bool recursive) const = 0;
  virtual std::vector<Held> held_by(const torch::jit::Module& module) const = 0;
  /// See `recogniser`.
  virtual std::function<bool(const ModuleRef&)> recogniser(const ModuleRef& module) const = 0;

 protected:
  ~ScriptModels() = default;
};

/// Throws `c10::NotImplementedError` in a program without the part.
TORCHTAP_API const ScriptModels& script_models();
/// `models` must live as long as the process.
TORCHTAP_API void set_script_models(const ScriptModels& models) noexcept;

}  // namespace torchtap::model::extend
