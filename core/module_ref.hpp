#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <torchtap/core/direct.hpp>
#include <typeinfo>
#include <vector>

namespace torch::nn {
class AnyModule;
class Module;
class SequentialImpl;
struct AnyModulePlaceholder;
}  // namespace torch::nn

namespace torch::jit {
struct Module;
}

namespace torchtap::core {

class HookPoint;

/// The ways in which code can be run around the forward of one module. Found by the walk, used by `hooks`.
struct Doors {
  /// Holders through which containers call the module (an entry of a `Sequential`, an `AnyModule`).
  std::vector<torch::nn::AnyModulePlaceholder*> holders;
  /// The module itself, if its type opted in (`TORCHTAP_MODULE`, `torchtap::nn::…`).
  HookPoint* point = nullptr;
  /// The module itself, if it is a `Sequential` that has entries: reached through them.
  torch::nn::SequentialImpl* sequence = nullptr;
  /// Whether calls of its forward are seen wherever they are made (`torchtap::transparent`).
  Direct direct = Direct::no;
  /// Whether it is a TorchScript module: hooks are compiled into its code.
  bool script = false;

  bool any() const noexcept {
    return !holders.empty() || point != nullptr || sequence != nullptr || direct != Direct::no || script;
  }
};

/// A module as the walk over a model found it, a `torch::nn::Module` or a `torch::jit::Module`. Regular and
/// cheap to copy.
///
/// Keeps the module alive (unless it stands on the stack), not the containers around it: use it while the
/// model keeps its structure.
class ModuleRef {
 public:
  /// Position in the walk: of `modules()` the root is 0, of `children()` the first child is.
  std::int64_t index() const noexcept { return node_->index; }
  /// Dotted path from the root: "" is the root, "layer1.0.conv" a descendant.
  const std::string& path() const noexcept { return node_->path; }
  /// Further paths of a module that stands in the model more than once, in the order of the walk.
  const std::vector<std::string>& aliases() const noexcept { return node_->aliases; }
  /// The pretty type name: "Linear" for `torch::nn::LinearImpl` and for
  /// `__torch__.torch.nn.modules.linear.Linear`.
  const std::string& type() const noexcept { return node_->type; }
  /// Of a TorchScript module the whole name, "__torch__.torch.nn.modules.linear.Linear"; else as `type`.
  const std::string& qualified_type() const noexcept {
    return scripted() ? node_->qualified_type : node_->type;
  }
  /// Steps from the root: 0 for the root itself.
  std::int64_t depth() const noexcept { return node_->depth; }
  /// Whether it has no submodules.
  bool leaf() const noexcept { return node_->leaf; }
  /// Whether it has a forward at all; `ModuleList`, `ModuleDict`, `ParameterList` and `ParameterDict` do not.
  /// Of a TorchScript module: whether it has the method that the walk was made for.
  bool has_forward() const noexcept { return node_->has_forward; }
  /// Whether hooks can be attached to it as the program stands.
  bool reachable() const noexcept { return node_->doors.any(); }
  /// Whether it is a TorchScript module.
  bool scripted() const noexcept { return node_->script != nullptr; }
  /// Throws `c10::TypeError` for a TorchScript module.
  torch::nn::Module& module() const;
  /// Throws `c10::TypeError` for a module that is none of TorchScript's.
  const torch::jit::Module& script() const;
  /// The method that hooks run around: "forward" unless a TorchScript model was walked for another one.
  const std::string& method() const noexcept { return node_->method; }
  /// Whether it is a TorchScript model that `torch.jit.freeze` has made: one whose submodules were inlined.
  bool frozen() const noexcept { return node_->frozen; }
  const Doors& doors() const noexcept { return node_->doors; }
  /// The root of the walk: "one forward" is one forward of it. A root refers to itself.
  ModuleRef root() const noexcept { return node_->root ? ModuleRef(node_->root) : *this; }

  friend bool operator==(const ModuleRef& a, const ModuleRef& b) noexcept {
    return a.node_->identity == b.node_->identity && a.node_->path == b.node_->path &&
           a.node_->method == b.node_->method;
  }
  friend bool operator!=(const ModuleRef& a, const ModuleRef& b) noexcept { return !(a == b); }

  struct Node {
    std::int64_t index = 0;
    std::string path;
    std::vector<std::string> aliases;
    std::string type;
    std::int64_t depth = 0;
    bool leaf = true;
    bool has_forward = true;
    const void* identity = nullptr;  // tells modules apart
    torch::nn::Module* module = nullptr;
    std::shared_ptr<torch::nn::Module> keep;  // null for a module on the stack
    std::shared_ptr<const torch::jit::Module> script;
    std::string qualified_type;
    std::string method = "forward";
    bool frozen = false;
    Doors doors;
    std::shared_ptr<const Node> root;  // null for the root itself
  };
  explicit ModuleRef(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

 private:
  std::shared_ptr<const Node> node_;
};

/// The model's modules in pre-order, the root first with path "". A shared module is listed once, at its
/// first path, with its other paths as aliases; indices count every module, also those without a forward.
///
/// Unlike `torch::nn::Module::modules()` this works on models that stand on the stack, too.
std::vector<ModuleRef> walk_modules(torch::nn::Module& root);

/// The direct children in order of registration, counted from 0; a module registered twice is listed once.
std::vector<ModuleRef> walk_children(torch::nn::Module& root);

/// The same for a TorchScript model. `method` is the one that hooks are to run around; "forward" includes
/// `forward1`, `forward2`…, which tracing makes of a module that is called several times. Only what the file
/// still has: a frozen model is a root without submodules.
///
/// Throws `c10::ValueError` for an empty `method`.
std::vector<ModuleRef> walk_modules(const torch::jit::Module& root, const std::string& method = "forward");
std::vector<ModuleRef> walk_children(const torch::jit::Module& root, const std::string& method = "forward");

/// The module that `any` holds, under the given path. Throws `c10::ValueError` if it is empty.
ModuleRef ref(torch::nn::AnyModule& any, const std::string& path = "");

/// "Linear" for `torch::nn::LinearImpl`, "Block" for `(anonymous namespace)::BlockImpl` and for
/// `torchtap::hooks::Hooked<BlockImpl>`.
std::string pretty_type_name(const torch::nn::Module& module);
std::string pretty_type_name(const std::type_info& type);

}  // namespace torchtap::core
