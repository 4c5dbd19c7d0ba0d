#pragma once

/// Tells the kernel of TorchScript models.

#include <functional>
#include <string>
#include <vector>

#include <torchtap/model/extend/script_models.hpp>

namespace torchtap::torchscript::detail {

class Models final : public model::extend::ScriptModels {
 public:
  std::vector<model::ModuleRef> walk(const torch::jit::Module& root, const std::string& method,
                                     bool recursive) const override;
  std::vector<model::Held> held_by(const torch::jit::Module& module) const override;
  std::function<bool(const model::ModuleRef&)> recogniser(const model::ModuleRef& module) const override;
};

}  // namespace torchtap::torchscript::detail
