#include "models.hpp"

#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <utility>

#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/walk.hpp>

#include "kept_code.hpp"

namespace torchtap::tools::preload {
namespace {

using torch::nn::Module;

std::vector<model::ModuleRef> without_ownership(const std::vector<model::ModuleRef>& modules) {
  std::vector<model::ModuleRef> refs;
  std::shared_ptr<const model::extend::Node> root;
  for (const model::ModuleRef& module : modules) {
    auto node = std::make_shared<model::extend::Node>(model::extend::Access::node(module));
    node->keep = nullptr;
    node->root = root;
    if (root == nullptr) root = node;
    refs.push_back(model::extend::Access::make(std::move(node)));
  }
  return refs;
}

/// Pointers that expire with the model: its own, or its parts' if no shared pointer owns it.
std::vector<std::weak_ptr<const Module>> lives_of(const std::vector<model::ModuleRef>& modules) {
  std::vector<std::weak_ptr<const Module>> lives;
  for (const model::ModuleRef& module : modules) {
    auto life = module.module().weak_from_this();
    if (!life.expired()) lives.push_back(std::move(life));
    if (&module == &modules.front() && !lives.empty()) break;
  }
  return lives;
}

}  // namespace

std::string about_frozen(const std::string& done) {
  return "a model was frozen, so its submodules are inlined and only the whole of it is " + done +
         "; run the file from before freezing.";
}

Pass::Modules FoundModel::expected() const {
  if (!called.empty()) return called;  // others may never run
  Pass::Modules all;
  for (const auto& entry : visible) all.insert(entry.first);
  return all;
}

std::shared_ptr<FoundModel> Models::found(const Module& root) {
  if (const auto known = places_.find(&root); known != places_.end() && !known->second.gone()) {
    // A part, or a model whose parameters may have been replaced since.
    if (known->second.model->ran || known->second.model->address != &root) return nullptr;
  }
  // Not const: hooks are attached to its modules.
  const std::vector<model::ModuleRef> modules = model::walk_modules(const_cast<Module&>(root));
  auto found = rules_.make();
  found->address = &root;
  found->type = modules.front().type();
  found->lives = lives_of(modules);
  if (found->lives.empty()) return nullptr;
  found->modules = without_ownership(modules);
  for (const model::ModuleRef& module : found->modules) {
    const auto known = places_.find(&module.module());
    if (known != places_.end() && !known->second.gone() && known->second.model->ran) {
      rules_.note(c10::str("the model ", found->type, " was seen after a part of it had run, ",
                           known->second.model->type, ": the part is ", rules_.done, "."));
      return nullptr;
    }
    if (rules_.sees(module)) found->visible.emplace(&module.module(), module);
  }
  if (found->visible.empty()) return nullptr;
  const auto is_part = [&](const std::shared_ptr<FoundModel>& other) {
    return other->address != nullptr && !other->ran &&
           std::any_of(modules.begin(), modules.end(),
                       [&](const model::ModuleRef& one) { return &one.module() == other->address; });
  };
  for (const auto& other : all_) {
    if (is_part(other)) forget(other);
  }
  all_.erase(std::remove_if(all_.begin(), all_.end(), is_part), all_.end());
  return add(found) ? found : nullptr;
}

bool Models::add(const std::shared_ptr<FoundModel>& found) {
  if (all_.size() == rules_.most) {
    rules_.note(c10::str("the program has more than ", rules_.most, " models at once; further ones (",
                         found->type, ") are not ", rules_.done, "."));
    return false;
  }
  all_.push_back(found);
  for (std::size_t i = 0; i < found->modules.size(); ++i) {
    const Module& module = found->modules[i].module();
    Place& place = places_[&module];
    const bool in_larger =
        place.model != nullptr && !place.gone() && place.model->modules.size() > found->modules.size();
    if (in_larger) continue;
    place = {found, i, module.weak_from_this()};
    note_code_of(place.owner);
    place.owned = !place.owner.expired();
  }
  return true;
}

void Models::forget(const std::shared_ptr<FoundModel>& found) {
  for (const model::ModuleRef& module : found->modules) {
    const auto place = places_.find(&module.module());
    if (place != places_.end() && place->second.model == found) places_.erase(place);
  }
}

FoundModel* Models::of(const Module& module) {
  const auto known = places_.find(&module);
  if (known != places_.end() && !known->second.gone()) return known->second.model.get();
  std::string& type = strangers_[typeid(module)];
  if (type.empty()) type = model::pretty_type_name(module);
  return nullptr;
}

FoundModel* Models::of(const torch::jit::Method& method) {
  const auto former = std::exchange(script_thread_, std::this_thread::get_id());
  if (!several_threads_ && former != std::thread::id() && former != script_thread_) {
    several_threads_ = true;
    for (const auto& one : all_) one->held = 0;
  }
  const c10::ivalue::Object* object = method.owner()._ivalue().get();
  const auto is_it = [&](const auto& one) {
    return one->object == object && one->method == method.name() && !one->gone();
  };
  const auto known = std::find_if(all_.begin(), all_.end(), is_it);
  if (known != all_.end()) return known->get();
  let_go();
  if (std::any_of(left_out_.begin(), left_out_.end(), is_it)) return nullptr;
  auto found = rules_.make();
  found->object = object;
  found->script.emplace(method.owner()._ivalue());
  found->method = method.name();
  const model::ModuleRef root = model::walk_modules(method.owner(), method.name()).front();
  found->type = root.type();
  if (root.frozen()) rules_.note(about_frozen(rules_.done));
  if (add(found)) return found.get();
  left_out_.push_back(found);
  return nullptr;
}

const model::ModuleRef* Models::place_of(const Module& module) const {
  const auto known = places_.find(&module);
  if (known == places_.end() || known->second.owner.expired()) return nullptr;
  return &known->second.model->modules[known->second.index];
}

void Models::let_go() {
  const auto is_dead = [](const std::shared_ptr<FoundModel>& one) { return one->gone(); };
  if (std::none_of(all_.begin(), all_.end(), is_dead)) return;
  left_out_.clear();  // there is room
  std::vector<std::shared_ptr<FoundModel>> stay;
  for (const auto& one : all_) {
    if (is_dead(one) && !one->ran) continue;
    if (!is_dead(one) || !rules_.gone(one)) {
      stay.push_back(one);
      continue;
    }
    forget(one);
    one->over = true;
    one->address = nullptr;
    one->lives.clear();
    one->script.reset();
    one->modules.clear();
    one->visible.clear();
  }
  all_ = std::move(stay);
  // Parts of a model may live longer than the model.
  for (auto place = places_.begin(); place != places_.end();) {
    const bool dead = place->second.model->gone() && place->second.owner.expired();
    place = dead ? places_.erase(place) : std::next(place);
  }
}

void Models::inherit(const Models& parent) {
  for (const auto& one : parent.all_) {
    if (one->address == nullptr || one->gone()) continue;
    const auto known = rules_.make();
    *known = *one;
    known->ran = false;
    add(known);
  }
}

std::set<std::string> Models::strangers() const {
  std::set<std::string> types;
  for (const auto& entry : strangers_) types.insert(entry.second);
  return types;
}

std::string Models::about_strangers() const {
  std::string list;
  for (const std::string& type : strangers()) list += (list.empty() ? "" : ", ") + type;
  if (list.empty()) return list;
  return c10::str("not ", rules_.done,
                  ", as they belong to no model that the program set to train or eval, or asked for its "
                  "parameters: ",
                  list, ".");
}

}  // namespace torchtap::tools::preload
