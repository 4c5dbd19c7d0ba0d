// Recognises C++ modules, and asks the part torchscript about its own.

#include <memory>

#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/extend/recognise.hpp>
#include <torchtap/model/extend/script_models.hpp>

namespace torchtap::model::extend {

std::function<bool(const ModuleRef&)> recogniser(const ModuleRef& module) {
  if (module.scripted()) return script_models().recogniser(module);
  const std::weak_ptr<torch::nn::Module> module_itself = Access::node(module).keep;
  return [module_itself](const ModuleRef& other) {
    const auto alive = module_itself.lock();
    return alive != nullptr && alive == Access::node(other).keep;
  };
}

}  // namespace torchtap::model::extend
