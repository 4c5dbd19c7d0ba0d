#pragma once

/// Defines `ModuleRef`, a module with its position in a model.

#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torch::nn {
class Module;
}

namespace torch::jit {
struct Module;
}

namespace torchtap::model {

namespace extend {
struct Node;
struct Access;
}  // namespace extend

/// A module of a model with its position there: a `torch::nn::Module`, a `torch::jit::Module` or a module of
/// an `exported::Model`. A regular value, cheap to copy. Made by `walk_modules`, `walk_children`, `find`,
/// `ref` and `exported::Model::modules`.
///
/// Shares ownership of the module if a `std::shared_ptr` owns it, and never of its parents. Invalid once the
/// model's structure changes.
class TORCHTAP_API ModuleRef {
 public:
  /// Position in the walk: 0 is the root for `modules()` and the first child for `children()`.
  std::int64_t index() const noexcept;
  /// Dotted path from the root: "" is the root, "layer1.0.conv" a descendant.
  const std::string& path() const& noexcept;
  /// For a temporary: returns by value.
  std::string path() && { return path(); }
  /// Further paths of a module that is registered more than once, in the order of the walk.
  const std::vector<std::string>& aliases() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<std::string> aliases() && { return aliases(); }
  /// The pretty type name: "Linear" for `torch::nn::LinearImpl` and for
  /// `__torch__.torch.nn.modules.linear.Linear`.
  const std::string& type() const& noexcept;
  /// For a temporary: returns by value.
  std::string type() && { return type(); }
  /// The full type name of a TorchScript module, "__torch__.torch.nn.modules.linear.Linear", or of a module
  /// of an exported model, "torch.nn.modules.linear.Linear"; `type()` for other modules.
  const std::string& qualified_type() const& noexcept;
  /// For a temporary: returns by value.
  std::string qualified_type() && { return qualified_type(); }
  /// Number of steps from the root: 0 for the root itself.
  std::int64_t depth() const noexcept;
  /// Whether it has no submodules.
  bool leaf() const noexcept;
  /// Whether it has a forward that may be called; `ModuleList`, `ModuleDict`, `ParameterList` and
  /// `ParameterDict` have none, and LibTorch never calls the `out_proj` of a `MultiheadAttention`. For a
  /// TorchScript module: whether it has the method that the walk was made for.
  bool has_forward() const noexcept;
  /// Whether hooks can be attached to it in this program.
  bool reachable() const noexcept;
  /// Whether it is a TorchScript module.
  bool scripted() const noexcept;
  /// Whether it is a module of an exported model (`exported::Model`), of which only its code is left.
  bool exported() const noexcept;
  /// The module. Throws `c10::TypeError` for one of TorchScript or of an exported model.
  torch::nn::Module& module() const;
  /// The TorchScript module. Throws `c10::TypeError` for any other.
  const torch::jit::Module& script() const&;
  /// For a temporary: returns by value.
  torch::jit::Module script() &&;
  /// The method that hooks run around: "forward" unless the walk over a TorchScript model was given another
  /// one.
  const std::string& method() const& noexcept;
  /// For a temporary: returns by value.
  std::string method() && { return method(); }
  /// Whether it is a frozen TorchScript model (`torch.jit.freeze`), whose submodules were inlined.
  bool frozen() const noexcept;
  /// The root of the walk; "one forward" is one forward of the root. A root refers to itself.
  ModuleRef root() const noexcept;

  /// Whether both refer to the same module at the same path, walked for the same method.
  friend bool operator==(const ModuleRef& a, const ModuleRef& b) noexcept { return a.equals(b); }
  friend bool operator!=(const ModuleRef& a, const ModuleRef& b) noexcept { return !a.equals(b); }

 private:
  friend struct extend::Access;
  explicit ModuleRef(std::shared_ptr<const extend::Node> node) noexcept : node_(std::move(node)) {}
  bool equals(const ModuleRef& other) const noexcept;

  std::shared_ptr<const extend::Node> node_;
};

/// "Linear" for `torch::nn::LinearImpl`, "Block" for `(anonymous namespace)::BlockImpl` and for
/// `torchtap::hooks::Hooked<BlockImpl>`.
TORCHTAP_API std::string pretty_type_name(const torch::nn::Module& module);
/// The pretty name of a type: pass `typeid(module)`.
TORCHTAP_API std::string pretty_type_name(const std::type_info& type);

}  // namespace torchtap::model
