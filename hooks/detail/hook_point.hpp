#pragma once

/// Defines the base of modules that run their own hooks, and the gate through which calls find hooks.

#include <atomic>
#include <cstdint>

#include <torchtap/base/api.hpp>
#include <torchtap/model/extend/runs_hooks.hpp>

namespace torchtap::hooks::detail {

struct Plan;

/// Connects running calls with the hooks of a module: an atomic pointer to the plan and the number of calls
/// in the gate that could not be noted (see readers.hpp).
///
/// A reader enters, loads the plan and leaves, without a lock. A replaced plan is freed only after the gate
/// was seen empty: the store and the notes are sequentially consistent, so every later reader sees the new
/// plan.
struct Gate {
  std::atomic<const Plan*> plan{nullptr};
  std::atomic<std::int32_t> readers{0};
};

class HookPoint;

/// Notified when a module that runs its own hooks is destroyed.
class HookPointListener {
 public:
  virtual void lost(HookPoint& point) noexcept = 0;

 protected:
  ~HookPointListener() = default;
};

/// Base of modules that run hooks around their own `forward` (see `hooks::Hooked`). Its members' names begin
/// with torchtap, because the module's own members, which may be called gate, are found beside them.
///
/// Hooks belong to the object: a copy or a clone starts without any.
class TORCHTAP_API HookPoint : public model::extend::RunsHooks {
 public:
  HookPoint() noexcept = default;
  HookPoint(const HookPoint& other) noexcept : RunsHooks(other) {}
  HookPoint& operator=(const HookPoint& /*other*/) noexcept { return *this; }  // NOLINT: keeps its own hooks
  ~HookPoint() override {
    if (auto* listener = torchtap_listener_.load()) listener->lost(*this);
  }

  Gate& torchtap_gate() noexcept { return torchtap_gate_; }
  void torchtap_listen(HookPointListener* listener) noexcept { torchtap_listener_.store(listener); }
  HookPointListener* torchtap_listener() const noexcept { return torchtap_listener_.load(); }

  /// The listener's place for the module; guarded by its lock.
  const void* torchtap_site = nullptr;

 private:
  Gate torchtap_gate_;
  std::atomic<HookPointListener*> torchtap_listener_{nullptr};
};

}  // namespace torchtap::hooks::detail
