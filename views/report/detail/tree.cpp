// Making the tree from a walk.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <torchtap/model/held.hpp>
#include <torchtap/views/report/detail/tree.hpp>

namespace torchtap::views::report::detail {
namespace {

std::string parent_path(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

void hold_all(TreeNode& node, std::unordered_set<const at::TensorImpl*>& seen) {
  const std::string& path = node.module.path();
  for (model::Held& one : model::held_by(node.module)) {
    const bool first = seen.insert(one.tensor.unsafeGetTensorImpl()).second;
    node.held.push_back(
        {path.empty() ? one.name : path + "." + one.name, std::move(one.tensor), one.buffer, first});
  }
}

}  // namespace

std::int64_t bytes_of(const at::Tensor& tensor) {
  if (tensor.is_nested()) return 0;  // its sizes throw
  if (tensor.layout() == c10::kStrided)
    return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
  if (tensor.is_sparse()) return tensor._values().nbytes() + tensor._indices().nbytes();
  return 0;
}

TensorInfo describe(const std::string& name, const at::Tensor& tensor) {
  TensorInfo info;
  info.name = name;
  if (!tensor.is_nested()) info.shape = tensor.sizes().vec();
  info.dtype = tensor.scalar_type();
  info.device = tensor.device();
  info.bytes = bytes_of(tensor);
  return info;
}

std::vector<TreeNode> make_tree(const std::vector<model::ModuleRef>& modules) {
  std::vector<TreeNode> tree;
  tree.reserve(modules.size());
  std::unordered_map<std::string, std::int64_t> by_path;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const model::ModuleRef& module : modules) {
    const auto index = static_cast<std::int64_t>(tree.size());
    by_path[module.path()] = index;
    for (const std::string& alias : module.aliases()) by_path[alias] = index;
    const std::int64_t parent = index == 0 ? -1 : by_path.at(parent_path(module.path()));
    TreeNode& node = tree.emplace_back(module, index, parent);
    if (parent >= 0) {
      tree[parent].children.push_back(index);
      const auto& above = tree[parent].chain;
      node.chain.insert(node.chain.end(), above.begin(), above.end());
    }
    hold_all(node, seen);
  }
  return tree;
}

}  // namespace torchtap::views::report::detail
