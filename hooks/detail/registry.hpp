#pragma once

#include <memory>
#include <mutex>
#include <torchtap/hooks/detail/call.hpp>
#include <torchtap/hooks/detail/holder_patch.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>
#include <torchtap/hooks/detail/interposed.hpp>
#include <torchtap/hooks/detail/script.hpp>
#include <torchtap/model/module_ref.hpp>
#include <unordered_map>
#include <vector>

namespace torchtap::hooks::detail {

/// Which module has which hooks, and through which doors they are reached. One per process and never
/// destroyed: models may outlive static objects. Its lock is taken to attach, to detach and when a hooked
/// module dies, never by a call; no code of the user's runs under it.
class TORCHTAP_API Registry final : public HookPointListener {
 public:
  static Registry& instance();

  void attach(const model::ModuleRef& module, const std::shared_ptr<Hook>& hook);
  void detach(Hook& hook) noexcept;
  bool attached(const Hook& hook) noexcept;
  /// The hook that marks the forwards of `root`, made on first use; null if the root cannot be hooked.
  std::shared_ptr<ScopeHold> scope(const model::ModuleRef& root);
  /// Has hooks of TorchScript modules take effect, or stop to; whoever attaches or detaches calls it then.
  void compile_scripts();

  /// A call has left a gate for good; frees plans that waited for that.
  void left() noexcept;
  /// Whether plans wait for calls to leave.
  std::atomic<bool> pending{false};

  /// The module itself goes.
  void lost(HookPoint& point) noexcept override;
  /// `holder` goes; called by its patched destructor before the original one. `patch` is what its table led
  /// to when that was dispatched, and may have been given to another holder since.
  void lost(HolderPatch& patch, const torch::nn::AnyModulePlaceholder* holder) noexcept;
  /// The `AnyModule` around `holder` was copied: the copy calls the same module.
  void copied(HolderPatch& patch, const torch::nn::AnyModulePlaceholder* holder,
              torch::nn::AnyModulePlaceholder* copy);
  /// A `Sequential` has more entries than when it was hooked: hooks them, too.
  void grown(Sequence& sequence);

 private:
  struct Site {
    const void* key = nullptr;
    std::vector<std::shared_ptr<Hook>> hooks;
    std::weak_ptr<ScopeHold> scope;
    std::shared_ptr<const Plan> plan;
    std::vector<HolderPatch*> patches;
    HookPoint* point = nullptr;
    Sequence* sequence = nullptr;
    InterposedEntry* interposed = nullptr;
    std::weak_ptr<torch::nn::Module> owner;  // where nothing else tells that the module died
    std::unique_ptr<ScriptDoor> script;

    bool unreachable() const noexcept {
      return patches.empty() && point == nullptr && sequence == nullptr && interposed == nullptr &&
             script == nullptr;
    }
    bool is_dead() const noexcept {
      return (interposed != nullptr && owner.expired()) || (script != nullptr && script->expired());
    }
    std::vector<Gate*> gates() const;
  };
  struct Retired {
    std::shared_ptr<const Plan> plan;
    std::vector<Gate*> gates;
  };
  using Garbage = std::vector<std::shared_ptr<const void>>;  // destroyed once the lock is released

  void open_doors(Site& site, const model::ModuleRef& module);
  void open_sequence(Site& site);
  void close_doors(Site& site) noexcept;
  void publish(Site& site, Garbage& garbage);
  void orphan(Site& site, Garbage& garbage) noexcept;
  void bury(Site& site, Garbage& garbage);
  void sweep(Garbage& garbage) noexcept;
  HolderPatch& patch(torch::nn::AnyModulePlaceholder* holder);
  void release(HolderPatch& patch) noexcept;

  std::mutex mutex_;
  std::unordered_map<const void*, Site> sites_;
  std::unordered_map<torch::nn::AnyModulePlaceholder*, HolderPatch*> patches_;
  std::unordered_map<torch::nn::SequentialImpl*, std::unique_ptr<Sequence>> sequences_;
  HolderPatchPool pool_;
  std::vector<Retired> retired_;
};

}  // namespace torchtap::hooks::detail
