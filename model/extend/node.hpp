#pragma once

// The data behind a ModuleRef. The walk fills it in; hooks read it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/model/extend/interposed_calls.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torch::nn {
class Module;
class SequentialImpl;
struct AnyModulePlaceholder;
}  // namespace torch::nn

namespace torch::jit {
struct Module;
}

namespace torchtap::model::extend {

class RunsHooks;

/// The ways to run code around the forward of one module.
struct Doors {
  /// Holders through which containers call the module (entries of a `Sequential`, `AnyModule`s).
  std::vector<torch::nn::AnyModulePlaceholder*> holders;
  /// The module itself, if its type opted in (`TORCHTAP_MODULE`, `torchtap::nn::…`).
  RunsHooks* point = nullptr;
  /// The module itself, if it is a `Sequential` with entries: it is reached through them.
  torch::nn::SequentialImpl* sequence = nullptr;
  /// Whether all calls of its forward are observed (`torchtap::transparent`).
  Interposed interposed = Interposed::no;
  /// Whether a part opens one (hooks/extend/door.hpp), as torchscript, which compiles hooks into code.
  bool of_part = false;

  bool any() const noexcept {
    return !holders.empty() || point != nullptr || sequence != nullptr || interposed != Interposed::no ||
           of_part;
  }
};

/// The tensors of a module that an exported model hands to hooks; `doors.point` runs them.
struct Taps {
  bool inputs = false;
  bool outputs = false;
  bool replaceable = false;  ///< whether a hook may replace them
};

struct Node {
  std::int64_t index = 0;
  std::string path;
  std::vector<std::string> aliases;
  std::string type;
  std::int64_t depth = 0;
  bool leaf = true;
  bool has_forward = true;
  bool uncalled = false;           // LibTorch computes with its parameters and never calls it
  const void* identity = nullptr;  // distinguishes modules
  torch::nn::Module* module = nullptr;
  std::shared_ptr<torch::nn::Module> keep;  // null for a module on the stack
  std::shared_ptr<const torch::jit::Module> script;
  std::string qualified_type;
  std::string method = "forward";
  bool frozen = false;
  bool has_own_hooks = false;  // of the root, compiled into a TorchScript file, to run after its forward
  std::optional<Taps> taps;    // of a module of an exported model, of which no object is left
  std::shared_ptr<const void> owner;  // of `doors.point` then
  Doors doors;
  std::shared_ptr<const Node> root;  // null for the root itself
};

/// Whether the sequence's calls consist of its entries' calls. The forward of a derived type may do more than
/// its base.
bool is_its_entries(const torch::nn::SequentialImpl& sequence);

/// Gives torchtap's own code access to the node of a ModuleRef.
struct Access {
  static const Node& node(const ModuleRef& module) noexcept { return *module.node_; }
  static ModuleRef make(std::shared_ptr<const Node> node) { return ModuleRef(std::move(node)); }
};

inline const Doors& doors_of(const ModuleRef& module) noexcept {
  return Access::node(module).doors;
}

}  // namespace torchtap::model::extend
