#pragma once

/// Counts, for each thread, the forwards of roots and the calls of each hooked module within one.

#include <c10/macros/Macros.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <torchtap/base/of_thread.hpp>
#include <torchtap/hooks/detail/plan.hpp>
#include <torchtap/hooks/detail/readers.hpp>

namespace torchtap::hooks::detail {

class Call;

/// The hooked calls that a thread is in, and its counters of calls.
struct ThreadState {
  struct Counter {
    std::uint64_t serial = 0;  // of the hook that owns this counter
    std::uint64_t forward =
        0;  // for a scope, its current forward; for other hooks, the forward of the last counted call
    std::int64_t calls = 0;
  };

  Readers readers;
  std::vector<Counter> counters;
  std::uint64_t last_forward = 0;
  std::uint64_t outermost = 0;  // the current forward of the outermost hooked module
  int depth = 0;
  Call* innermost = nullptr;
  std::vector<std::function<void()>> ending;  // called when `depth` is 0 again

  static ThreadState& here() { return base::of_thread<ThreadState>(); }

  /// Says that a call of the outermost hooked module begins.
  void begin_outermost() noexcept { outermost = ++last_forward; }
  /// Counts a forward of each root whose scope is in the plan.
  void begin_forwards(const Plan& plan) {
    for (std::size_t i = 0; i < plan.forward_pre_begin; ++i) counter(*plan.hooks[i]).forward = ++last_forward;
  }
  /// The forward that calls count by. A thread that has not entered the root's forward (a TorchScript fork,
  /// say) counts by its outermost hooked module.
  std::uint64_t forward_of(const Hook* scope) {
    const std::uint64_t forward = scope != nullptr ? counter(*scope).forward : 0;
    return forward != 0 ? forward : outermost;
  }
  /// The index of the call of the hook's module that begins.
  std::int64_t next_call_index(const Hook& hook) {
    const std::uint64_t forward = forward_of(hook.scope.get());
    Counter& counter = this->counter(hook);
    if (counter.forward != forward) {
      counter.forward = forward;
      counter.calls = 0;
    }
    return counter.calls++;
  }
  C10_NOINLINE void run_ending() {
    for (const auto& function : std::exchange(ending, {})) function();
  }

 private:
  Counter& counter(const Hook& hook) {
    if (C10_UNLIKELY(hook.counter >= counters.size())) grow(hook.counter + 1);
    Counter& counter = counters[hook.counter];
    if (counter.serial != hook.serial) counter = Counter{hook.serial, 0, 0};
    return counter;
  }
  C10_NOINLINE void grow(std::size_t size) { counters.resize(size); }
};

/// Leaves a gate; frees replaced plans that waited for it.
void leave(ThreadState& state, Gate& gate) noexcept;

}  // namespace torchtap::hooks::detail
