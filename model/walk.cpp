// Walks `torch::nn` models, notes the ways by which hooks reach each module, and finds modules by path.

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/parameterdict.h>
#include <torch/nn/modules/container/parameterlist.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include <torchtap/base/error.hpp>
#include <torchtap/model/extend/any_module_content.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/extend/runs_hooks.hpp>
#include <torchtap/model/walk.hpp>

namespace torchtap::model {
namespace {

using extend::Doors;
using extend::Following;
using extend::holder_of;
using extend::Interposed;
using extend::Node;
using torch::nn::Module;

bool lacks_forward(const Module& module) {
  return dynamic_cast<const torch::nn::ModuleListImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::ModuleDictImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::ParameterListImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::ParameterDictImpl*>(&module) != nullptr;
}

bool has_forward(const Module& module) {
  return !lacks_forward(module) && extend::noted_type(typeid(module)) != Following::no_forward;
}

/// Whether LibTorch's forward of the parent computes with the child's parameters instead of calling it.
bool leaves_uncalled(const Module& parent, const std::string& child) {
  return child == "out_proj" && dynamic_cast<const torch::nn::MultiheadAttentionImpl*>(&parent) != nullptr &&
         pretty_type_name(parent) == "MultiheadAttention";  // the forward of a derived type may call it
}

// If the module's forward runs its hooks, a holder that calls this forward must not run them again. Only a
// holder made for a base class bypasses it. With torchtap::transparent such a holder calls through a view,
// which leaves the call to the holder's hooks, as another holder may not call through it.
void add_holder(Doors& doors, torch::nn::AnyModulePlaceholder* holder, const Module& module) {
  const bool runs_hooks = doors.point != nullptr || doors.interposed == Interposed::symbol;
  if (!runs_hooks || holder->type_info != typeid(module)) doors.holders.push_back(holder);
}

// Without a shared_ptr we cannot detect that another object reuses this address, so such modules are not
// hooked by address.
Interposed interposed_calls_of(const Module& module, const std::shared_ptr<Module>& keep) {
  const extend::InterposedCalls* calls = extend::interposed_calls();
  if (keep == nullptr || calls == nullptr) return Interposed::no;
  if (std::get_deleter<extend::MadeByHolder>(keep) != nullptr) return Interposed::holder;
  return calls->cover(module) ? Interposed::symbol : Interposed::no;
}

class Walk {
 public:
  explicit Walk(Module& root) {
    add(root, root.weak_from_this().lock(), "", 0);
    collect_entries(root);
  }
  void visit_descendants() { visit_children(*order_.front()->module, "", 1, /*recursive=*/true); }
  void visit_children() { visit_children(*order_.front()->module, "", 1, /*recursive=*/false); }

  std::vector<ModuleRef> finish(std::size_t skip) {
    std::vector<ModuleRef> refs;
    for (const auto& node : order_) {
      node->has_forward = node->has_forward && !node->uncalled;
      const auto entries = entries_.equal_range(node->module);
      for (auto entry = entries.first; entry != entries.second; ++entry) {
        add_holder(node->doors, entry->second, *node->module);
      }
      if (node != order_.front()) node->root = order_.front();
    }
    for (std::size_t i = skip; i < order_.size(); ++i) {
      order_[i]->index = static_cast<std::int64_t>(refs.size());
      refs.push_back(extend::Access::make(order_[i]));
    }
    return refs;
  }

 private:
  /// Returns false and adds an alias if the module was met before.
  bool add(Module& module, std::shared_ptr<Module> keep, const std::string& path, std::int64_t depth,
           bool uncalled = false) {
    const auto [found, is_new] = nodes_.try_emplace(&module, order_.size());
    if (!is_new) {
      order_[found->second]->aliases.push_back(path);
      order_[found->second]->uncalled = order_[found->second]->uncalled && uncalled;
      return false;
    }
    auto node = std::make_shared<Node>();
    node->path = path;
    node->depth = depth;
    node->uncalled = uncalled;
    node->identity = node->module = &module;
    node->keep = std::move(keep);
    node->type = pretty_type_name(module);
    node->leaf = module.children().empty();
    node->doors.point = dynamic_cast<extend::RunsHooks*>(&module);
    node->doors.interposed = interposed_calls_of(module, node->keep);
    node->has_forward = node->doors.point != nullptr || has_forward(module);
    auto* sequence = dynamic_cast<torch::nn::SequentialImpl*>(&module);
    if (sequence != nullptr && !sequence->is_empty() && extend::is_its_entries(*sequence)) {
      node->doors.sequence = sequence;
    }
    order_.push_back(std::move(node));
    return true;
  }

  // Descends into a shared module again at each of its paths, so that its submodules get all their aliases.
  void visit_children(Module& module, const std::string& path, std::int64_t depth, bool recursive) {
    for (const auto& child : module.named_children()) {
      if (child.value() == nullptr) continue;  // register_module of an empty holder leaves a null child
      const std::string child_path = path.empty() ? child.key() : path + "." + child.key();
      add(*child.value(), child.value(), child_path, depth, leaves_uncalled(module, child.key()));
      if (recursive) visit_children(*child.value(), child_path, depth + 1, true);
    }
  }

  // Searches the whole model, also for walk_children: a child may be an entry of a container further down.
  void collect_entries(Module& module) {
    if (!searched_.insert(&module).second) return;
    if (auto* sequence = dynamic_cast<torch::nn::SequentialImpl*>(&module)) {
      for (auto& entry : *sequence) {
        if (!entry.is_empty()) entries_.emplace(entry.ptr().get(), holder_of(entry));
      }
    }
    for (const auto& child : module.children()) {
      if (child != nullptr) collect_entries(*child);
    }
  }

  std::vector<std::shared_ptr<Node>> order_;
  std::unordered_map<const Module*, std::size_t> nodes_;
  std::unordered_set<const Module*> searched_;
  std::unordered_multimap<const Module*, torch::nn::AnyModulePlaceholder*> entries_;
};

}  // namespace

bool extend::is_its_entries(const torch::nn::SequentialImpl& sequence) {
  return typeid(sequence) == typeid(torch::nn::SequentialImpl) ||
         noted_type(typeid(sequence)) == Following::sequential;
}

std::vector<ModuleRef> walk_modules(Module& root) {
  Walk walk(root);
  walk.visit_descendants();
  return walk.finish(/*skip=*/0);
}

std::vector<ModuleRef> walk_children(Module& root) {
  Walk walk(root);
  walk.visit_children();
  return walk.finish(/*skip=*/1);
}

ModuleRef ref(torch::nn::AnyModule& any, const std::string& path) {
  TORCH_CHECK_VALUE(!any.is_empty(), "model::ref: the AnyModule given as \"", path,
                    "\" is empty; put a module into it first.");
  auto node = std::make_shared<Node>();
  node->path = path;
  node->keep = any.ptr();
  node->identity = node->module = node->keep.get();
  node->type = pretty_type_name(*node->module);
  node->leaf = node->module->children().empty();
  node->doors.point = dynamic_cast<extend::RunsHooks*>(node->module);
  node->doors.interposed = interposed_calls_of(*node->module, node->keep);
  add_holder(node->doors, holder_of(any), *node->module);
  return extend::Access::make(std::move(node));
}

ModuleRef extend::find_in(const std::vector<ModuleRef>& modules, const std::string& path) {
  const auto found = std::find_if(modules.begin(), modules.end(), [&](const ModuleRef& module) {
    return module.path() == path ||
           std::find(module.aliases().begin(), module.aliases().end(), path) != module.aliases().end();
  });
  if (found == modules.end()) {
    std::vector<std::string> paths;
    paths.reserve(modules.size());
    for (const auto& module : modules) paths.push_back(module.path());
    TORCH_CHECK_INDEX(false, "model::find: the model has no module at \"", path, "\"; the nearest are ",
                      base::quoted(base::nearest(path, paths)), ".");
  }
  return *found;
}

void extend::refuse_empty_holder() {
  TORCH_CHECK_VALUE(false,
                    "the holder that was given as a model is empty (made of nullptr, or moved from); "
                    "assign a module to it first.");
}

void extend::refuse_null_model() {
  TORCH_CHECK_VALUE(false, "the pointer that was given as a model is null.");
}

ModuleRef find(torch::nn::Module& root, const std::string& path) {
  return extend::find_in(walk_modules(root), path);
}

ModuleRef find(const torch::jit::Module& root, const std::string& path, const std::string& method) {
  return extend::find_in(walk_modules(root, method), path);
}

}  // namespace torchtap::model
