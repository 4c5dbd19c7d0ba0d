// Answers the queries of `ModuleRef` from its node, and shortens the names of C++ module types.

#include <torch/nn/module.h>

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::model {

std::int64_t ModuleRef::index() const noexcept {
  return node_->index;
}
const std::string& ModuleRef::path() const& noexcept {
  return node_->path;
}
const std::vector<std::string>& ModuleRef::aliases() const& noexcept {
  return node_->aliases;
}
const std::string& ModuleRef::type() const& noexcept {
  return node_->type;
}
const std::string& ModuleRef::qualified_type() const& noexcept {
  return scripted() || exported() ? node_->qualified_type : node_->type;
}
std::int64_t ModuleRef::depth() const noexcept {
  return node_->depth;
}
bool ModuleRef::leaf() const noexcept {
  return node_->leaf;
}
bool ModuleRef::has_forward() const noexcept {
  return node_->has_forward;
}
bool ModuleRef::reachable() const noexcept {
  return node_->doors.any();
}
bool ModuleRef::scripted() const noexcept {
  return node_->script != nullptr;
}
bool ModuleRef::exported() const noexcept {
  return node_->taps.has_value();
}
const std::string& ModuleRef::method() const& noexcept {
  return node_->method;
}
bool ModuleRef::frozen() const noexcept {
  return node_->frozen;
}
ModuleRef ModuleRef::root() const noexcept {
  return node_->root ? ModuleRef(node_->root) : *this;
}
bool ModuleRef::equals(const ModuleRef& other) const noexcept {
  return node_->identity == other.node_->identity && node_->path == other.node_->path &&
         node_->method == other.node_->method;
}

torch::nn::Module& ModuleRef::module() const {
  TORCH_CHECK_TYPE(!scripted(), "model::ModuleRef::module: \"", path(), "\" (", type(),
                   ") is a TorchScript module; call script().");
  TORCH_CHECK_TYPE(!exported(), "model::ModuleRef::module: \"", path(), "\" (", type(),
                   ") is a module of an exported model, of which only compiled code is left.");
  return *node_->module;
}

const torch::jit::Module& ModuleRef::script() const& {
  TORCH_CHECK_TYPE(scripted(), "model::ModuleRef::script: \"", path(), "\" (", type(),
                   ") is not a TorchScript module; call module().");
  return *node_->script;
}

torch::jit::Module ModuleRef::script() && {
  return script();
}

std::string pretty_type_name(const torch::nn::Module& module) {
  return pretty_type_name(typeid(module));
}

std::string pretty_type_name(const std::type_info& type) {
  std::string name = c10::demangle(type.name());
  const std::string wrapper = "torchtap::hooks::HookedWith<";
  if (name.compare(0, wrapper.size(), wrapper) == 0) {
    // Find the comma or bracket that ends the first template argument.
    std::size_t end = wrapper.size();
    for (int open = 0; end < name.size() && (open > 0 || (name[end] != ',' && name[end] != '>')); ++end) {
      if (name[end] == '<') ++open;
      if (name[end] == '>') --open;
    }
    name = name.substr(wrapper.size(), end - wrapper.size());
  }
  // Find the last component outside template arguments.
  std::size_t start = 0;
  int open = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<' || name[i] == '(' || name[i] == '{') ++open;
    if (name[i] == '>' || name[i] == ')' || name[i] == '}') --open;
    if (open == 0 && name[i] == ':') start = i + 1;
  }
  name = name.substr(start);
  const std::string suffix = "Impl";
  const std::size_t end = std::min(name.find('<'), name.size());  // "BoxImpl<int>" is "Box<int>"
  if (end > suffix.size() && name.compare(end - suffix.size(), suffix.size(), suffix) == 0) {
    name.erase(end - suffix.size(), suffix.size());
  }
  return name;
}

}  // namespace torchtap::model
