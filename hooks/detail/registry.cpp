// Opens and closes the ways to a module's forward, publishes plans, and frees them after the last call.

#include <c10/macros/Macros.h>
#include <pthread.h>

#include <algorithm>

#include <torchtap/hooks/detail/readers.hpp>
#include <torchtap/hooks/detail/registry.hpp>
#include <torchtap/model/extend/node.hpp>

namespace torchtap::hooks::detail {
namespace {

template <class Container, class Value>
void erase_value(Container& container, const Value& value) {
  container.erase(std::remove(container.begin(), container.end(), value), container.end());
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
  for (const auto& door : open.doors) gates.push_back(&door->gate());
  return gates;
}

void Registry::Site::close(const Gate& gate) noexcept {
  if (const auto door = open.find(gate); door != open.doors.end()) open.doors.erase(door);
}

const void* Registry::key_of(const model::ModuleRef& module) const {
  for (const DoorKind* kind : kinds_) {
    if (const void* key = kind->key_of(module)) return key;
  }
  return model::extend::Access::node(module).identity;
}

void Registry::add(DoorKind& kind) {
  const std::lock_guard lock(mutex_);
  kinds_.push_back(&kind);
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
  site.open.key = key;
  try {
    for (DoorKind* kind : kinds_) kind->open(module, named(*hook), site.open);
    site.hooks.insert(place == Place::first ? site.hooks.begin() : site.hooks.end(), hook);
    hook->module = key;
    publish(site, garbage);
  } catch (...) {
    erase_value(site.hooks, hook);
    if (site.hooks.empty()) sites_.erase(key);
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
  if (site.hooks.empty()) sites_.erase(found);
}

void Registry::settle() {
  const std::lock_guard lock(mutex_);
  for (DoorKind* kind : kinds_) kind->settle();
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
  const void* key;
  {
    const std::lock_guard lock(mutex_);
    key = key_of(root);
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

// Points all gates of the site to a plan of its current hooks.
void Registry::publish(Site& site, Garbage& garbage) {
  auto plan = site.hooks.empty() ? nullptr : std::make_shared<const Plan>(site.hooks);
  if (plan != nullptr) {
    for (const auto& door : site.open.doors) door->show(*plan);
  }
  const auto former = std::exchange(site.plan, std::move(plan));
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

C10_NOINLINE void Registry::left() noexcept {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  sweep(garbage);
}

// Removes a module that was destroyed, with its hooks.
void Registry::orphan(Site& site, Garbage& garbage) noexcept {
  for (auto& hook : site.hooks) garbage.push_back(std::move(hook));
  garbage.push_back(std::move(site.plan));
  sites_.erase(site.open.key);
}

// As orphan(), for a module whose death was not reported; its address may already belong to another module
// with calls in flight.
void Registry::bury(Site& site, Garbage& garbage) {
  for (auto& hook : site.hooks) garbage.push_back(std::move(hook));
  site.hooks.clear();
  publish(site, garbage);
  sites_.erase(site.open.key);
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
  if (found != sites_.end()) close(found->second, point.torchtap_gate(), garbage);
}

void Registry::lost(HolderPatch& patch, const torch::nn::AnyModulePlaceholder* holder) noexcept {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  if (patch.holder.load() != holder) return;
  if (Sequence* sequence = patch.sequence.exchange(nullptr)) {
    sequence->patches.erase(&patch);
    const auto found = sequence->patches.empty() ? sites_.find(sequence->site) : sites_.end();
    if (found != sites_.end()) close(found->second, sequence->gate, garbage);
  }
  const auto found = sites_.find(patch.site);
  if (found != sites_.end()) close(found->second, patch.gate, garbage);
  if (patch.holder.load() != holder) return;  // closing has released it
  patch.site = nullptr;
  holders_.release(patch);
}

// Closes a door whose end of the way is gone.
void Registry::close(Site& site, Gate& gate, Garbage& garbage) noexcept {
  if (!site.open.has(gate)) return;
  gate.plan.store(nullptr);
  site.close(gate);
  if (site.open.doors.empty()) orphan(site, garbage);
}

void Registry::copied(HolderPatch& original, const torch::nn::AnyModulePlaceholder* holder,
                      torch::nn::AnyModulePlaceholder* copy) {
  const std::lock_guard lock(mutex_);
  if (original.holder.load() != holder) return;
  const auto found = sites_.find(original.site);
  if (original.site == nullptr || found == sites_.end()) return;
  Site& site = found->second;
  holders_.open(copy, named(*site.hooks.front()), site.open).gate.plan.store(site.plan.get());
}

void Registry::grown(Sequence& sequence) {
  const std::lock_guard lock(mutex_);
  const auto found = sites_.find(sequence.site);
  if (found == sites_.end()) return;
  const auto door = found->second.open.find(sequence.gate);
  if (door != found->second.open.doors.end()) (*door)->show(*found->second.plan);
}

}  // namespace torchtap::hooks::detail

void torchtap::hooks::extend::add_door_kind(DoorKind& kind) {
  detail::Registry::instance().add(kind);
}
