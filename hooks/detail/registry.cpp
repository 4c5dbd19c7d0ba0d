// Opens and closes the ways to a module's forward, publishes plans, and frees them after the last call.

#include <pthread.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/detail/another_copy.hpp>
#include <torchtap/hooks/detail/readers.hpp>
#include <torchtap/hooks/detail/registry.hpp>
#include <torchtap/model/extend/any_module_content.hpp>
#include <torchtap/model/extend/node.hpp>

namespace torchtap::hooks::detail {
namespace {

template <class Container, class Value>
void erase_value(Container& container, const Value& value) {
  container.erase(std::remove(container.begin(), container.end(), value), container.end());
}

const void* key_of(const model::ModuleRef& module) {
  return module.scripted() ? script_key(module) : model::extend::Access::node(module).identity;
}

std::string named(const Hook& hook) {
  return c10::str("\"", hook.path, "\" (", hook.type, ")");
}

}  // namespace

Registry& Registry::instance() {
  // Locked across fork(): otherwise a child could inherit a mutex that another thread held.
  static auto* registry = [] {
    ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] { instance().mutex_.unlock(); });
    return new Registry;
  }();
  return *registry;
}

std::vector<Gate*> Registry::Site::gates() const {
  std::vector<Gate*> gates;
  for (auto* patch : patches) gates.push_back(&patch->gate);
  if (point != nullptr) gates.push_back(&point->torchtap_gate());
  if (sequence != nullptr) gates.push_back(&sequence->gate);
  if (interposed != nullptr) gates.push_back(&interposed->gate);
  if (script != nullptr) gates.push_back(&script->gate());
  return gates;
}

void Registry::attach(const model::ModuleRef& module, const std::shared_ptr<Hook>& hook, Place place) {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  const void* key = key_of(module);
  if (const auto found = sites_.find(key); found != sites_.end() && found->second.is_dead()) {
    bury(found->second, garbage);  // another module lived at this address
  }
  bury_the_dead(garbage);
  Site& site = sites_[key];
  site.key = key;
  try {
    open_doors(site, module, *hook);
    site.hooks.insert(place == Place::first ? site.hooks.begin() : site.hooks.end(), hook);
    hook->module = key;
    publish(site, garbage);
  } catch (...) {
    erase_value(site.hooks, hook);
    if (site.hooks.empty()) {
      close_doors(site);
      sites_.erase(key);
    }
    throw;
  }
}

void Registry::detach(Hook& hook) noexcept {
  hook.active.store(false);
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  const auto found = sites_.find(hook.module);
  if (found == sites_.end()) return;
  Site& site = found->second;
  const auto position = std::find_if(site.hooks.begin(), site.hooks.end(),
                                     [&](const auto& other) { return other.get() == &hook; });
  if (position == site.hooks.end()) return;
  garbage.push_back(*position);
  site.hooks.erase(position);
  publish(site, garbage);
  if (site.hooks.empty()) {
    close_doors(site);
    sites_.erase(found);
  }
}

void Registry::compile_scripts() {
  const std::lock_guard lock(mutex_);
  detail::compile_scripts();
}

bool Registry::attached(const Hook& hook) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = sites_.find(hook.module);
  return found != sites_.end() && !found->second.is_dead() &&
         std::any_of(found->second.hooks.begin(), found->second.hooks.end(),
                     [&](const auto& other) { return other.get() == &hook; });
}

std::shared_ptr<ScopeHold> Registry::scope(const model::ModuleRef& root) {
  if (!root.reachable()) return nullptr;
  const void* key = key_of(root);
  {
    const std::lock_guard lock(mutex_);
    const auto found = sites_.find(key);
    if (found != sites_.end() && !found->second.is_dead()) {
      if (auto hold = found->second.scope.lock()) return hold;
    }
  }
  auto hold = std::make_shared<ScopeHold>(std::make_shared<Hook>());
  hold->hook->is_scope = true;
  hold->hook->path = root.path();
  hold->hook->type = root.type();
  attach(root, hold->hook);
  const std::lock_guard lock(mutex_);
  const auto found = sites_.find(key);
  if (found != sites_.end()) found->second.scope = hold;
  return hold;
}

void Registry::open_doors(Site& site, const model::ModuleRef& module, const Hook& hook) {
  const model::extend::Doors& doors = model::extend::doors_of(module);
  for (auto* holder : doors.holders) {
    HolderPatch& door = patch(holder, hook);
    if (door.site == nullptr) {
      door.site = site.key;
      site.patches.push_back(&door);
    }
  }
  if (doors.point != nullptr && site.point == nullptr) {
    auto* point = static_cast<HookPoint*>(doors.point);
    const auto* listener = point->torchtap_listener();
    check_copy(listener != nullptr && listener != this, named(hook));
    site.point = point;
    site.point->torchtap_site = site.key;
    site.point->torchtap_listen(this);
  }
  if (doors.sequence != nullptr && site.sequence == nullptr) {
    auto& sequence = sequences_[doors.sequence];
    if (sequence == nullptr) {
      sequence = std::make_unique<Sequence>();
      sequence->module = doors.sequence;
    }
    // A running call may be reading it: written only if another module has replaced a destroyed one.
    if (auto keep = doors.sequence->weak_from_this();
        keep.owner_before(sequence->keep) || sequence->keep.owner_before(keep)) {
      sequence->keep = std::move(keep);
      sequence->shared = !sequence->keep.expired();
    }
    sequence->site = site.key;
    site.sequence = sequence.get();
  }
  if (doors.interposed != model::extend::Interposed::no && site.interposed == nullptr) {
    site.owner = module.module().weak_from_this();
    site.interposed = &interposed_table().insert(&module.module(), site.owner);
    note_interposed_table();
  }
  if (doors.script && site.script == nullptr) site.script = std::make_unique<ScriptDoor>(module);
}

// Patches the entries that the sequence's hooks need: the first one if they only count forwards, otherwise
// all.
void Registry::open_sequence(Site& site) {
  Sequence& sequence = *site.sequence;
  const bool scope_only =
      std::all_of(site.hooks.begin(), site.hooks.end(), [](const auto& hook) { return hook->is_scope; });
  const std::size_t size = sequence.module->size();
  std::size_t position = 0;
  for (auto& entry : *sequence.module) {
    const bool needed = !scope_only || position == 0;
    HolderPatch* door = nullptr;
    if (needed) {
      door = &patch(model::extend::holder_of(entry), *site.hooks.front());
    } else if (const auto found = patches_.find(model::extend::holder_of(entry)); found != patches_.end()) {
      door = found->second;
    }
    if (door != nullptr) {
      door->position.store(position);
      door->last.store(position + 1 == size);
      door->sequence.store(needed ? &sequence : nullptr);
      if (needed) {
        sequence.patches.insert(door);
      } else {
        sequence.patches.erase(door);
        release(*door);
      }
    }
    ++position;
  }
  sequence.entries.store(size);
  sequence.scope_only.store(scope_only);
}

void Registry::close_doors(Site& site) noexcept {
  for (auto* door : site.patches) {
    door->site = nullptr;
    release(*door);
  }
  site.patches.clear();
  if (site.point != nullptr) site.point->torchtap_listen(nullptr);
  site.point = nullptr;
  if (site.sequence != nullptr) {
    for (auto* door : site.sequence->patches) {
      door->sequence.store(nullptr);
      release(*door);
    }
    site.sequence->patches.clear();
  }
  site.sequence = nullptr;
  if (site.interposed != nullptr) {
    interposed_table().erase(*site.interposed);
    note_interposed_table();
  }
  site.interposed = nullptr;
  site.script = nullptr;
}

// Points all gates of the site to a plan of its current hooks.
void Registry::publish(Site& site, Garbage& garbage) {
  if (site.sequence != nullptr && !site.hooks.empty()) open_sequence(site);
  const auto former = std::move(site.plan);
  site.plan = site.hooks.empty() ? nullptr : std::make_shared<const Plan>(site.hooks);
  if (site.script != nullptr && site.plan != nullptr) {
    const bool counts = site.plan->forward_pre_begin != 0;
    // Gradients need both sides: a call puts their hooks on its outputs.
    const bool whole = counts || site.plan->has_backward_output();
    site.script->show({site.plan->wants_inputs || whole, site.plan->wants_outputs});
  }
  const auto gates = site.gates();
  for (auto* gate : gates) gate->plan.store(site.plan.get());
  if (former != nullptr) {
    retired_.push_back({former, gates});
    pending.store(true);
  }
  sweep(garbage);
}

void Registry::sweep(Garbage& garbage) noexcept {
  const auto waiting = std::partition(retired_.begin(), retired_.end(), [](const Retired& retired) {
    return std::any_of(retired.gates.begin(), retired.gates.end(),
                       [](const Gate* gate) { return Readers::any_in(*gate); });
  });
  for (auto retired = waiting; retired != retired_.end(); ++retired)
    garbage.push_back(std::move(retired->plan));
  retired_.erase(waiting, retired_.end());
  pending.store(!retired_.empty());
}

void Registry::left() noexcept {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  sweep(garbage);
}

// Removes a module that was destroyed, with its hooks.
void Registry::orphan(Site& site, Garbage& garbage) noexcept {
  for (auto& hook : site.hooks) garbage.push_back(std::move(hook));
  garbage.push_back(std::move(site.plan));
  close_doors(site);
  sites_.erase(site.key);
}

// As orphan(), for a module whose death was not reported; its address may already belong to another module
// with calls in flight.
void Registry::bury(Site& site, Garbage& garbage) {
  for (auto& hook : site.hooks) garbage.push_back(std::move(hook));
  site.hooks.clear();
  publish(site, garbage);
  close_doors(site);
  sites_.erase(site.key);
}

// Hooks whose handles were released go with their module, for which somebody has to look where nothing
// reports its death: here each time that the sites have doubled, so that a look costs little a site.
void Registry::bury_the_dead(Garbage& garbage) {
  if (sites_.size() < search_at_) return;
  std::vector<Site*> dead;
  for (auto& [key, site] : sites_) {
    if (site.is_dead()) dead.push_back(&site);
  }
  for (Site* site : dead) bury(*site, garbage);
  search_at_ = std::max(search_at_, 2 * sites_.size());
}

void Registry::lost(HookPoint& point) noexcept {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  for (auto& retired : retired_) erase_value(retired.gates, &point.torchtap_gate());
  const auto found = sites_.find(point.torchtap_site);
  if (found == sites_.end() || found->second.point != &point) return;
  found->second.point = nullptr;
  if (found->second.unreachable()) orphan(found->second, garbage);
}

void Registry::lost(HolderPatch& patch, const torch::nn::AnyModulePlaceholder* holder) noexcept {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  if (patch.holder.load() != holder) return;
  if (Sequence* sequence = patch.sequence.exchange(nullptr)) {
    sequence->patches.erase(&patch);
    const auto found = sequence->patches.empty() ? sites_.find(sequence->site) : sites_.end();
    if (found != sites_.end() && found->second.sequence == sequence) {
      sequence->gate.plan.store(nullptr);
      found->second.sequence = nullptr;
      if (found->second.unreachable()) orphan(found->second, garbage);
    }
  }
  if (const auto found = sites_.find(patch.site); patch.site != nullptr && found != sites_.end()) {
    patch.gate.plan.store(nullptr);
    erase_value(found->second.patches, &patch);
    if (found->second.unreachable()) orphan(found->second, garbage);
  }
  patch.site = nullptr;
  release(patch);
}

void Registry::copied(HolderPatch& original, const torch::nn::AnyModulePlaceholder* holder,
                      torch::nn::AnyModulePlaceholder* copy) {
  const std::lock_guard lock(mutex_);
  if (original.holder.load() != holder) return;
  const auto found = sites_.find(original.site);
  if (original.site == nullptr || found == sites_.end()) return;
  HolderPatch& door = patch(copy, *found->second.hooks.front());
  door.site = original.site;
  found->second.patches.push_back(&door);
  door.gate.plan.store(found->second.plan.get());
}

void Registry::grown(Sequence& sequence) {
  const std::lock_guard lock(mutex_);
  const auto found = sites_.find(sequence.site);
  if (found != sites_.end() && found->second.sequence == &sequence) open_sequence(found->second);
}

HolderPatch& Registry::patch(torch::nn::AnyModulePlaceholder* holder, const Hook& hook) {
  auto& patch = patches_[holder];
  if (patch == nullptr) {
    try {
      patch = &pool_.apply(holder, named(hook));
    } catch (...) {
      patches_.erase(holder);
      throw;
    }
  }
  return *patch;
}

// Removes the patch once neither the module behind the holder nor the sequence around it has hooks.
void Registry::release(HolderPatch& patch) noexcept {
  if (patch.site != nullptr || patch.sequence.load() != nullptr) return;
  patches_.erase(patch.holder.load());
  pool_.restore(patch);
}

}  // namespace torchtap::hooks::detail
