#pragma once

/// Defines the registry of all hooked modules of the process.

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <torchtap/hooks/detail/doors.hpp>
#include <torchtap/hooks/detail/plan.hpp>
#include <torchtap/model/module_ref.hpp>

/// Names in this folder:
/// - plan: the immutable list of one module's hooks;
/// - gate: the atomic pointer through which calls find a plan; `Readers` know which calls are in it;
/// - door: one way to run hooks around a forward (patched holder, hook point, interposed call, or
///   what a part adds, as TorchScript);
/// - site: the registry's record of a hooked module or method, with its hooks, its plan and its open doors;
/// - scope: a hook without callback on a root, which counts the root's forwards;
/// - retired: a replaced plan that a call may still read;
/// - garbage: hooks and plans to destroy after the lock is released;
/// - orphan, bury: remove the site of a module whose destruction was, or was not, reported.
namespace torchtap::hooks::detail {

/// The hooks of every module, and the ways in which its calls reach them. One per process and never
/// destroyed: models may outlive static objects. Its lock is taken to attach, to detach and when a hooked
/// module dies, never by a call; no user code runs under it.
class TORCHTAP_API Registry final : public HookPointListener {
 public:
  static Registry& instance();

  void attach(const model::ModuleRef& module, const std::shared_ptr<Hook>& hook, Place place = Place::last);
  void detach(Hook& hook) noexcept;
  bool attached(const Hook& hook) noexcept;
  /// The hook that counts the forwards of `root`, made on first use; null if the root cannot be hooked.
  std::shared_ptr<ScopeHold> scope(const model::ModuleRef& root);
  /// Has doors take up what changed. Call it after attach and detach.
  void settle();
  /// Adds a kind of doors that a part brings.
  void add(DoorKind& kind);

  /// Called when a call has left its gate; frees replaced plans that waited for it.
  void left() noexcept;
  /// Whether replaced plans wait for calls to leave.
  static inline std::atomic<bool> pending{false};

  /// Called when the module itself is destroyed.
  void lost(HookPoint& point) noexcept override;
  /// Called by the patched destructor of `holder` before the original one. `patch` belonged to its table at
  /// dispatch; it may serve another holder by now.
  void lost(HolderPatch& patch, const torch::nn::AnyModulePlaceholder* holder) noexcept;
  /// Called when the `AnyModule` around `holder` was copied: the copy calls the same module.
  void copied(HolderPatch& patch, const torch::nn::AnyModulePlaceholder* holder,
              torch::nn::AnyModulePlaceholder* copy);
  /// Hooks the entries that a `Sequential` got since it was hooked.
  void grown(Sequence& sequence);

 private:
  struct Site {
    std::vector<std::shared_ptr<Hook>> hooks;
    std::weak_ptr<ScopeHold> scope;
    std::shared_ptr<const Plan> plan;
    OpenDoors open;

    bool is_dead() const noexcept {
      return std::any_of(open.doors.begin(), open.doors.end(),
                         [](const auto& door) { return door->expired(); });
    }
    std::vector<Gate*> gates() const;
    void close(const Gate& gate) noexcept;
  };
  struct Retired {
    std::shared_ptr<const Plan> plan;
    std::vector<Gate*> gates;
  };
  using Garbage = std::vector<std::shared_ptr<const void>>;  // destroyed after the lock is released

  const void* key_of(const model::ModuleRef& module) const;
  void publish(Site& site, Garbage& garbage);
  void orphan(Site& site, Garbage& garbage) noexcept;
  void bury(Site& site, Garbage& garbage);
  void bury_the_dead(Garbage& garbage);
  void sweep(Garbage& garbage) noexcept;
  void close(Site& site, Gate& gate, Garbage& garbage) noexcept;

  std::mutex mutex_;
  HolderDoors holders_;
  PointDoors points_{*this};
  SequenceDoors sequences_{holders_};
  InterposedDoors interposed_;
  std::vector<DoorKind*> kinds_{&holders_, &points_, &sequences_, &interposed_};
  std::unordered_map<const void*, Site> sites_;
  std::vector<Retired> retired_;
  std::size_t search_at_ = 32;  // that many sites: the dead are looked for
};

}  // namespace torchtap::hooks::detail
