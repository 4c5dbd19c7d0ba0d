// Holds what the part torchscript registered, and asks it about TorchScript models.

#include <atomic>

#include <torchtap/base/error.hpp>
#include <torchtap/model/extend/script_models.hpp>
#include <torchtap/model/walk.hpp>

namespace torchtap::model {

namespace extend {
namespace {

std::atomic<const ScriptModels*> registered{nullptr};

}  // namespace

const ScriptModels& script_models() {
  const ScriptModels* const models = registered.load();
  TORCH_CHECK_NOT_IMPLEMENTED(
      models != nullptr,
      "model::walk_modules: a torch::jit::Module was given for a model, and this program has only the kernel "
      "of torchtap, without the component that knows TorchScript. Build torchtap with "
      "-DTORCHTAP_COMPONENTS=torchscript, which is among the defaults, and link torchtap::torchtap or "
      "torchtap::torchscript.");
  return *models;
}

void set_script_models(const ScriptModels& models) noexcept {
  registered.store(&models);
}

}  // namespace extend

std::vector<ModuleRef> walk_modules(const torch::jit::Module& root, const std::string& method) {
  return extend::script_models().walk(root, method, /*recursive=*/true);
}

std::vector<ModuleRef> walk_children(const torch::jit::Module& root, const std::string& method) {
  return extend::script_models().walk(root, method, /*recursive=*/false);
}

}  // namespace torchtap::model
