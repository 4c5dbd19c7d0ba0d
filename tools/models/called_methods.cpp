#include "called_methods.hpp"

#include <torch/csrc/jit/api/function_impl.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include <torchtap/model/walk.hpp>
#include <torchtap/torchscript/functions.hpp>

namespace torchtap::tools {
namespace {

using Object = c10::intrusive_ptr<c10::ivalue::Object>;

/// "encode" for "encode__1", an overload, and "forward" for "forward2", which tracing makes.
std::string method_of(const std::string& function) {
  std::size_t end = function.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(function[end - 1])) != 0) --end;
  std::string method = function.substr(0, end);
  if (end < function.size() && end > 2 && method.compare(end - 2, 2, "__") == 0) method.resize(end - 2);
  return torchscript::implements(function, method) ? method : function;
}

/// The methods by which objects are called from outside.
class Calls {
 public:
  void follow(const Object& self, const std::string& method) {
    for (auto* function : torchscript::functions_of(torch::jit::Module(self), method))
      follow(self, *function);
  }
  const std::set<std::string>& of(const void* object) { return methods_[object]; }
  /// Whether `method` is called on an object that the code does not identify.
  bool has_unknown(const std::string& method) const { return unknown_.count(method) != 0; }

 private:
  using Objects = std::unordered_map<const torch::jit::Value*, Object>;

  void follow(const Object& self, torch::jit::Function& function) {
    if (!met_.insert({self.get(), &function}).second) return;
    auto* code = torch::jit::tryToGraphFunction(function);
    if (code == nullptr) return;
    code->ensure_defined();
    const auto graph = code->graph();
    Objects objects{{graph->inputs()[0], self}};
    follow(*graph->block(), objects, self);
  }

  void follow(torch::jit::Block& block, Objects& objects, const Object& self) {
    for (auto* node : block.nodes()) {
      const bool is_call = node->kind() == c10::prim::CallMethod;
      if (is_call || node->kind() == c10::prim::GetAttr) {
        const auto found = objects.find(node->input(0));
        if (found != objects.end()) {
          const Object object = found->second;
          const std::string& name = node->s(c10::attr::name);
          if (is_call) {
            call(object, name, self);
          } else if (const c10::IValue value = object->getAttr(name); value.isModule()) {
            objects[node->output()] = value.toObject();
          }
        } else if (is_call) {
          unknown_.insert(method_of(node->s(c10::attr::name)));
        }
      }
      for (auto* inner : node->blocks()) follow(*inner, objects, self);
      if (!node->hasAttribute(c10::attr::Subgraph)) continue;
      const auto forked = node->g(c10::attr::Subgraph);
      for (std::size_t i = 0; i < std::min(forked->inputs().size(), node->inputs().size()); ++i) {
        if (objects.count(node->input(i)) != 0) objects[forked->inputs()[i]] = objects.at(node->input(i));
      }
      follow(*forked->block(), objects, self);
    }
  }

  void call(const Object& object, const std::string& name, const Object& caller) {
    auto* function = object->type()->findMethod(name);
    if (function == nullptr) return;
    if (object != caller) methods_[object.get()].insert(method_of(name));
    follow(object, *function);
  }

  std::unordered_map<const void*, std::set<std::string>> methods_;
  std::set<std::string> unknown_;
  std::set<std::pair<const void*, const void*>> met_;
};

}  // namespace

Methods find_methods(const torch::jit::Module& model, const std::string& called,
                     const std::string& recorded) {
  Methods methods;
  methods.modules = model::walk_modules(model, recorded);
  Calls calls;
  calls.follow(model._ivalue(), called);
  std::map<std::string, std::vector<model::ModuleRef>> walks;
  for (auto& module : methods.modules) {
    std::set<std::string> names = calls.of(module.script()._ivalue().get());
    if (module.depth() == 0) names.insert(called);
    if (names.empty()) continue;
    const std::string path = module.path();
    if (names.erase(recorded) == 0 && !(module.has_forward() && calls.has_unknown(recorded))) {
      const std::string other = names.count("forward") != 0 ? "forward" : *names.begin();
      auto& walk = walks[other];
      if (walk.empty()) walk = model::walk_modules(model, other);
      module = walk[static_cast<std::size_t>(module.index())];
      methods.instead[path] = other;
      names.erase(other);
    }
    if (!names.empty()) methods.others[path] = std::move(names);
  }
  return methods;
}

}  // namespace torchtap::tools
