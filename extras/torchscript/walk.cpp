// Walks TorchScript models, detects frozen ones, and finds the functions that implement a method.

#include <ATen/core/function_schema.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include <torchtap/base/error.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/torchscript/detail/script_models.hpp>
#include <torchtap/torchscript/functions.hpp>

namespace torchtap::torchscript {

bool implements(const std::string& function, const std::string& method) {
  if (function.compare(0, method.size(), method) != 0) return false;
  std::string number = function.substr(method.size());
  if (number.empty()) return true;
  const bool is_overload = number.compare(0, 2, "__") == 0;
  if (is_overload) number.erase(0, 2);
  return (is_overload || method == "forward") && !number.empty() &&
         std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::vector<torch::jit::Function*> functions_of(const torch::jit::Module& module, const std::string& method) {
  std::vector<torch::jit::Function*> functions;
  for (auto* function : module.type()->methods()) {
    if (implements(function->name(), method)) functions.push_back(function);
  }
  return functions;
}

namespace {

using model::ModuleRef;
using model::extend::Node;
using ScriptModule = torch::jit::Module;

bool has_constant_weights(torch::jit::Block& block) {
  for (auto* node : block.nodes()) {
    if (node->kind() == c10::prim::Constant && node->hasAttribute(c10::attr::value) &&
        node->kindOf(c10::attr::value) == torch::jit::AttributeKind::t) {
      const at::Tensor& constant = node->t(c10::attr::value);
      if (constant.is_floating_point() && constant.dim() > 0) return true;
    }
    for (auto* inner : node->blocks()) {
      if (has_constant_weights(*inner)) return true;
    }
  }
  return false;
}

// Freezing turns parameters into constants of the code and removes submodules with their parameters.
bool looks_frozen(const ScriptModule& root, const std::string& method) {
  if (root.named_children().size() != 0 || root.parameters(/*recurse=*/false).size() != 0) return false;
  for (auto* function : functions_of(root, method)) {
    auto* graph_function = torch::jit::tryToGraphFunction(*function);
    if (graph_function == nullptr) continue;
    graph_function->ensure_defined();
    if (has_constant_weights(*graph_function->graph()->block())) return true;
  }
  return false;
}

// "__torch__.net.___torch_mangle_3.Block" is "__torch__.net.Block": the number belongs to the file, not to
// the class.
std::string without_mangling(const std::vector<std::string>& atoms) {
  std::string name;
  for (const auto& atom : atoms) {
    if (atom.compare(0, 15, "___torch_mangle") == 0) continue;
    name += (name.empty() ? "" : ".") + atom;
  }
  return name;
}

class ScriptWalk {
 public:
  ScriptWalk(const ScriptModule& root, const std::string& method) : method_(method) {
    TORCH_CHECK_VALUE(!method.empty() && (method == "forward" || !implements(method, "forward")),
                      "model::walk_modules: \"", method,
                      "\" does not name a separate method; expected \"forward\", which includes forward1, "
                      "forward2…, or the name of another method.");
    add(root, "", 0);
    order_.front()->frozen = looks_frozen(root, method);
  }

  void visit_children(const ScriptModule& module, const std::string& path, std::int64_t depth,
                      bool recursive) {
    for (const auto& child : module.named_children()) {
      const std::string child_path = path.empty() ? child.name : path + "." + child.name;
      add(child.value, child_path, depth);
      if (recursive) visit_children(child.value, child_path, depth + 1, true);
    }
  }

  std::vector<ModuleRef> finish(std::size_t skip) {
    std::vector<ModuleRef> refs;
    for (const auto& node : order_) {
      if (node != order_.front()) node->root = order_.front();
    }
    for (std::size_t i = skip; i < order_.size(); ++i) {
      order_[i]->index = static_cast<std::int64_t>(refs.size());
      refs.push_back(model::extend::Access::make(order_[i]));
    }
    return refs;
  }

 private:
  void add(const ScriptModule& module, const std::string& path, std::int64_t depth) {
    const void* identity = module._ivalue().get();
    const auto [found, is_new] = nodes_.try_emplace(identity, order_.size());
    if (!is_new) {
      order_[found->second]->aliases.push_back(path);
      return;
    }
    auto node = std::make_shared<Node>();
    node->path = path;
    node->depth = depth;
    node->identity = identity;
    node->script = std::make_shared<const ScriptModule>(module);
    if (const auto& name = module.type()->name()) {
      node->type = name->name();
      node->qualified_type = without_mangling(name->atoms());
    }
    node->leaf = module.named_children().size() == 0;
    node->method = method_;
    node->has_forward = !functions_of(module, method_).empty();
    node->doors.of_part = node->has_forward;
    node->has_own_hooks = path.empty() && !module.type()->getForwardHooks().empty();
    order_.push_back(std::move(node));
  }

  std::string method_;
  std::vector<std::shared_ptr<Node>> order_;
  std::unordered_map<const void*, std::size_t> nodes_;
};

}  // namespace

std::vector<ModuleRef> detail::Models::walk(const ScriptModule& root, const std::string& method,
                                            bool recursive) const {
  ScriptWalk walk(root, method);
  walk.visit_children(root, "", 1, recursive);
  return walk.finish(/*skip=*/recursive ? 0 : 1);
}

std::vector<model::Held> detail::Models::held_by(const ScriptModule& module) const {
  std::vector<model::Held> held;
  const auto hold = [&](const std::string& name, const at::Tensor& tensor, bool buffer) {
    if (tensor.defined()) held.push_back({name, tensor, buffer});
  };
  for (const auto& one : module.named_parameters(false)) hold(one.name, one.value, false);
  for (const auto& one : module.named_buffers(false)) hold(one.name, one.value, true);
  return held;
}

std::function<bool(const ModuleRef&)> detail::Models::recogniser(const ModuleRef& module) const {
  const c10::weak_intrusive_ptr<c10::ivalue::Object> object(module.script()._ivalue());
  return [object, method = module.method()](const ModuleRef& other) {
    return other.scripted() && other.method() == method && !object.expired() &&
           object == c10::weak_intrusive_ptr<c10::ivalue::Object>(other.script()._ivalue());
  };
}

}  // namespace torchtap::torchscript
