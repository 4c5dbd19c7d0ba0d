// Refuses to list the children of frozen models.
#include <torchtap/selectors/selector.hpp>
#include <torchtap/selectors/walk.hpp>

namespace torchtap::selectors {

ModuleView children(const torch::jit::Module& model, const std::string& method) {
  const model::ModuleRef root = model::walk_modules(model, method).front();
  if (root.frozen()) select({root}, {});  // throws, and says why it has no children
  return ModuleView(model::walk_children(model, method));
}

}  // namespace torchtap::selectors
