// Refuses to list the children of frozen models and the modules of null pointers.
#include <torchtap/base/error.hpp>
#include <torchtap/selectors/selector.hpp>
#include <torchtap/selectors/walk.hpp>

namespace torchtap::selectors {

ModuleView children(const torch::jit::Module& model, const std::string& method) {
  const model::ModuleRef root = model::walk_modules(model, method).front();
  if (root.frozen()) select({root}, {});  // throws, and says why it has no children
  return ModuleView(model::walk_children(model, method));
}

void ModuleView::throw_null() {
  TORCH_CHECK_VALUE(false, "selectors::ModuleView: the pointer that was given as a model is null.");
}

ModuleView children(const std::shared_ptr<torch::nn::Module>& model) {
  TORCH_CHECK_VALUE(model != nullptr, "selectors::children: the pointer that was given as a model is null.");
  return children(*model);
}

}  // namespace torchtap::selectors
