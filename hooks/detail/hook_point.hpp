#pragma once

#include <atomic>
#include <cstdint>
#include <torchtap/core/api.hpp>
#include <torchtap/model/detail/runs_hooks.hpp>

namespace torchtap::hooks::detail {

struct Plan;

/// The place at which a running call meets the hooks of a module: an atomic pointer and the number of calls
/// that look at it.
///
/// Readers enter, load the plan, and leave, without a lock. A replaced plan is freed only once the gate was
/// seen empty: the store and the count are sequentially consistent, so a reader that entered later sees the
/// new plan.
struct Gate {
  std::atomic<const Plan*> plan{nullptr};
  std::atomic<std::int32_t> readers{0};
};

class HookPoint;

/// Told when a module that runs its own hooks is destroyed.
class HookPointListener {
 public:
  virtual void lost(HookPoint& point) noexcept = 0;

 protected:
  ~HookPointListener() = default;
};

/// A module that runs hooks around its own `forward` derives from this (see `hooks::Hooked`).
///
/// Hooks belong to the object: a copy or a clone starts without any.
class TORCHTAP_API HookPoint : public model::detail::RunsHooks {
 public:
  HookPoint() noexcept = default;
  HookPoint(const HookPoint& other) noexcept : RunsHooks(other) {}
  HookPoint& operator=(const HookPoint& /*other*/) noexcept { return *this; }
  ~HookPoint() override {
    if (auto* listener = listener_.load()) listener->lost(*this);
  }

  Gate& gate() noexcept { return gate_; }
  void listen(HookPointListener* listener) noexcept { listener_.store(listener); }

 private:
  Gate gate_;
  std::atomic<HookPointListener*> listener_{nullptr};
};

}  // namespace torchtap::hooks::detail
