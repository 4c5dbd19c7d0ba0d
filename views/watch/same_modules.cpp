#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/views/watch/same_modules.hpp>

namespace torchtap::views::watch {

std::vector<model::ModuleRef> names_of(const std::vector<model::ModuleRef>& modules) {
  std::vector<model::ModuleRef> names;
  std::shared_ptr<const model::extend::Node> root;
  for (const model::ModuleRef& module : modules) {
    auto node = std::make_shared<model::extend::Node>(model::extend::Access::node(module));
    node->module = nullptr;
    node->keep = nullptr;
    node->script = nullptr;
    node->root = root;
    if (root == nullptr) root = node;
    names.push_back(model::extend::Access::make(std::move(node)));
  }
  return names;
}

void check_same(const char* call, const std::vector<model::ModuleRef>& former,
                const std::vector<model::ModuleRef>& modules) {
  const auto is_same = [](const model::ModuleRef& a, const model::ModuleRef& b) {
    return a.path() == b.path() && a.type() == b.type() && a.reachable() == b.reachable();
  };
  TORCH_CHECK_VALUE(
      modules.size() == former.size() && std::equal(modules.begin(), modules.end(), former.begin(), is_same),
      call, ": the modules of this ", modules.empty() ? "model" : modules.front().type(),
      " have other paths or types than those of the model that was watched.");
}

}  // namespace torchtap::views::watch
