// Knows models without keeping them alive.
#include "ownership.hpp"

#include <utility>

#include <torchtap/model/detail/node.hpp>

namespace torchtap::preload {

std::vector<model::ModuleRef> without_ownership(const std::vector<model::ModuleRef>& modules) {
  std::vector<model::ModuleRef> refs;
  std::shared_ptr<const model::detail::Node> root;
  for (const model::ModuleRef& module : modules) {
    auto node = std::make_shared<model::detail::Node>(model::detail::Access::node(module));
    node->keep = nullptr;
    node->root = root;
    if (root == nullptr) root = node;
    refs.push_back(model::detail::Access::make(std::move(node)));
  }
  return refs;
}

std::weak_ptr<const torch::nn::Module> life_of(const std::vector<model::ModuleRef>& modules) {
  for (const model::ModuleRef& module : modules) {
    auto life = module.module().weak_from_this();
    if (!life.expired()) return life;
  }
  return {};
}

}  // namespace torchtap::preload
