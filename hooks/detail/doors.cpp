// Opens and closes the ways to the forwards of C++ modules.

#include <torch/nn/modules/container/sequential.h>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/detail/another_copy.hpp>
#include <torchtap/hooks/detail/doors.hpp>
#include <torchtap/hooks/detail/interposed.hpp>
#include <torchtap/model/extend/any_module_content.hpp>
#include <torchtap/model/extend/node.hpp>

namespace torchtap::hooks::detail {
namespace {

class HolderDoor final : public Door {
 public:
  HolderDoor(HolderDoors& kind, HolderPatch& patch, const void* site) : kind_(kind), patch_(patch) {
    patch_.site = site;
  }
  ~HolderDoor() override {
    patch_.site = nullptr;
    kind_.release(patch_);
  }
  Gate& gate() noexcept override { return patch_.gate; }

 private:
  HolderDoors& kind_;
  HolderPatch& patch_;
};

class PointDoor final : public Door {
 public:
  PointDoor(HookPoint& point, const void* site, HookPointListener& listener) : point_(point) {
    point_.torchtap_site = site;
    point_.torchtap_listen(&listener);
  }
  ~PointDoor() override { point_.torchtap_listen(nullptr); }
  Gate& gate() noexcept override { return point_.torchtap_gate(); }

 private:
  HookPoint& point_;
};

class SequenceDoor final : public Door {
 public:
  SequenceDoor(HolderDoors& holders, Sequence& sequence, const void* site)
      : holders_(holders), sequence_(sequence) {
    sequence_.site = site;
  }
  ~SequenceDoor() override {
    for (auto* door : sequence_.patches) {
      door->sequence.store(nullptr);
      holders_.release(*door);
    }
    sequence_.patches.clear();
  }
  Gate& gate() noexcept override { return sequence_.gate; }

  // Patches the entries that the hooks need: the first one if they only count forwards, otherwise all.
  void show(const Plan& plan) override {
    const bool scope_only = plan.forward_pre_begin == plan.hooks.size();
    const std::size_t size = sequence_.module->size();
    std::size_t position = 0;
    for (auto& entry : *sequence_.module) {
      auto* const holder = model::extend::holder_of(entry);
      const bool needed = !scope_only || position == 0;
      HolderPatch* const door =
          needed ? &holders_.patch(holder, named(*plan.hooks.front())) : holders_.find(holder);
      if (door != nullptr) take(*door, needed, position, position + 1 == size);
      ++position;
    }
    sequence_.entries.store(size);
    sequence_.scope_only.store(scope_only);
  }

 private:
  void take(HolderPatch& door, bool needed, std::size_t position, bool last) {
    door.position.store(position);
    door.last.store(last);
    door.sequence.store(needed ? &sequence_ : nullptr);
    if (needed) {
      sequence_.patches.insert(&door);
    } else {
      sequence_.patches.erase(&door);
      holders_.release(door);
    }
  }

  HolderDoors& holders_;
  Sequence& sequence_;
};

class InterposedDoor final : public Door {
 public:
  InterposedDoor(torch::nn::Module& module, std::weak_ptr<torch::nn::Module> owner)
      : owner_(std::move(owner)), entry_(interposed_table().insert(&module, owner_)) {
    note_interposed_table();
  }
  ~InterposedDoor() override {
    interposed_table().erase(entry_);
    note_interposed_table();
  }
  Gate& gate() noexcept override { return entry_.gate; }
  bool expired() const noexcept override { return owner_.expired(); }

 private:
  std::weak_ptr<torch::nn::Module> owner_;
  InterposedEntry& entry_;
};

}  // namespace

std::string named(const Hook& hook) {
  return c10::str("\"", hook.path, "\" (", hook.type, ")");
}

void HolderDoors::open(const model::ModuleRef& module, const std::string& named, OpenDoors& doors) {
  for (auto* holder : model::extend::doors_of(module).holders) {
    if (patch(holder, named).site == nullptr) open(holder, named, doors);
  }
}

HolderPatch& HolderDoors::open(torch::nn::AnyModulePlaceholder* holder, const std::string& named,
                               OpenDoors& doors) {
  HolderPatch& opened = patch(holder, named);
  doors.doors.push_back(std::make_unique<HolderDoor>(*this, opened, doors.key));
  return opened;
}

HolderPatch& HolderDoors::patch(torch::nn::AnyModulePlaceholder* holder, const std::string& named) {
  auto& patch = patches_[holder];
  if (patch == nullptr) {
    try {
      patch = &pool_.apply(holder, named);
    } catch (...) {
      patches_.erase(holder);
      throw;
    }
  }
  return *patch;
}

HolderPatch* HolderDoors::find(torch::nn::AnyModulePlaceholder* holder) const {
  const auto found = patches_.find(holder);
  return found == patches_.end() ? nullptr : found->second;
}

void HolderDoors::release(HolderPatch& patch) noexcept {
  if (patch.site != nullptr || patch.sequence.load() != nullptr) return;
  patches_.erase(patch.holder.load());
  pool_.restore(patch);
}

void PointDoors::open(const model::ModuleRef& module, const std::string& named, OpenDoors& doors) {
  auto* const point = static_cast<HookPoint*>(model::extend::doors_of(module).point);
  if (point == nullptr || doors.has(point->torchtap_gate())) return;
  const auto* listener = point->torchtap_listener();
  check_copy(listener != nullptr && listener != &listener_, named);
  doors.doors.push_back(std::make_unique<PointDoor>(*point, doors.key, listener_));
}

void SequenceDoors::open(const model::ModuleRef& module, const std::string& /*named*/, OpenDoors& doors) {
  auto* const hooked = model::extend::doors_of(module).sequence;
  if (hooked == nullptr) return;
  auto& sequence = sequences_[hooked];
  if (sequence == nullptr) {
    sequence = std::make_unique<Sequence>();
    sequence->module = hooked;
  }
  if (doors.has(sequence->gate)) return;
  // A running call may be reading it: written only if another module has replaced a destroyed one.
  if (auto keep = hooked->weak_from_this();
      keep.owner_before(sequence->keep) || sequence->keep.owner_before(keep)) {
    sequence->keep = std::move(keep);
    sequence->shared = !sequence->keep.expired();
  }
  doors.doors.push_back(std::make_unique<SequenceDoor>(holders_, *sequence, doors.key));
}

void InterposedDoors::open(const model::ModuleRef& module, const std::string& /*named*/, OpenDoors& doors) {
  if (model::extend::doors_of(module).interposed == model::extend::Interposed::no) return;
  const InterposedEntry* const entry = interposed_table().find(&module.module());
  if (entry != nullptr && doors.has(entry->gate)) return;
  doors.doors.push_back(std::make_unique<InterposedDoor>(module.module(), module.module().weak_from_this()));
}

}  // namespace torchtap::hooks::detail
