#pragma once

/// Defines the kernel's kinds of doors: holders, modules that opted in, `Sequential`s, interposed calls.

#include <memory>
#include <string>
#include <unordered_map>

#include <torchtap/hooks/detail/holder_patch.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>
#include <torchtap/hooks/extend/door.hpp>

namespace torchtap::hooks::detail {

using extend::Door;
using extend::DoorKind;
using extend::OpenDoors;

/// Patched holders, by which containers call their entries.
class HolderDoors final : public DoorKind {
 public:
  void open(const model::ModuleRef& module, const std::string& named, OpenDoors& doors) override;
  /// Opens the holder for the module whose doors these are.
  HolderPatch& open(torch::nn::AnyModulePlaceholder* holder, const std::string& named, OpenDoors& doors);

  /// The holder's patch, made if there is none.
  HolderPatch& patch(torch::nn::AnyModulePlaceholder* holder, const std::string& named);
  /// Null if there is none.
  HolderPatch* find(torch::nn::AnyModulePlaceholder* holder) const;
  /// Removes the patch once neither the module behind the holder nor the sequence around it has hooks.
  void release(HolderPatch& patch) noexcept;

 private:
  std::unordered_map<torch::nn::AnyModulePlaceholder*, HolderPatch*> patches_;
  HolderPatchPool pool_;
};

/// Modules whose types opted in.
class PointDoors final : public DoorKind {
 public:
  explicit PointDoors(HookPointListener& listener) noexcept : listener_(listener) {}
  void open(const model::ModuleRef& module, const std::string& named, OpenDoors& doors) override;

 private:
  HookPointListener& listener_;
};

/// `Sequential`s, which are reached through their entries.
class SequenceDoors final : public DoorKind {
 public:
  explicit SequenceDoors(HolderDoors& holders) noexcept : holders_(holders) {}
  void open(const model::ModuleRef& module, const std::string& named, OpenDoors& doors) override;

 private:
  HolderDoors& holders_;
  std::unordered_map<torch::nn::SequentialImpl*, std::unique_ptr<Sequence>> sequences_;
};

/// Modules whose calls torchtap::transparent observes.
class InterposedDoors final : public DoorKind {
 public:
  void open(const model::ModuleRef& module, const std::string& named, OpenDoors& doors) override;
};

/// The module of a hook in errors.
std::string named(const Hook& hook);

}  // namespace torchtap::hooks::detail
