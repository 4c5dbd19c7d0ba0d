#pragma once

/// Defines `Call`, which runs the hooks around one forward of a module.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>
#include <torchtap/hooks/detail/plan.hpp>
#include <torchtap/hooks/values.hpp>

namespace torchtap::hooks::detail {

class CallGradients;
struct ThreadState;

/// Whether a call has no hooks to run. One relaxed load: may miss a hook that another thread attaches at this
/// moment.
inline bool is_idle(const Gate& gate) noexcept {
  return gate.plan.load(std::memory_order_relaxed) == nullptr;
}

/// Runs the hooks around one call. Create one on the stack around each forward.
///
///     if (is_idle(gate)) return forward(arguments);
///     Call call(gate);
///     if (call.idle()) return forward(arguments);
///     call.before(inputs);  …  call.after(outputs);
///
/// If forward throws, the destructor does the rest.
class TORCHTAP_API Call {
 public:
  explicit Call(Gate& gate);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Whether this thread is in the forward of `module`, with its hooks around it.
  static bool is_inside(const void* module) noexcept;
  /// Says that what is called next is the same call of the module.
  void hand_on() noexcept { hands_on_ = true; }
  /// Whether a holder has handed on the call of `module` that begins here, so that its hooks run already.
  static bool hands_on(const void* module) noexcept;

  /// Whether the module has no hooks.
  bool idle() const noexcept { return plan_ == nullptr; }
  /// Whether `before` and `after` have hooks to run.
  bool wants_inputs() const noexcept { return plan_->wants_inputs; }
  bool wants_outputs() const noexcept { return plan_->wants_outputs; }
  /// Leaves the gate and keeps the plan alive instead. For calls that may never end.
  void own_plan();

  /// Runs the forward-pre hooks; may replace the tensors that `inputs` refers to. Keep `inputs` until forward
  /// returns.
  void before(CallTensors& inputs);
  /// Runs the forward hooks and attaches gradient hooks to the outputs; may replace the tensors that
  /// `outputs` refers to.
  void after(CallTensors& outputs);
  /// The same where the memory of the inputs that `before` was given may have been used again: `inputs` are
  /// those as they are now.
  void after(CallTensors& outputs, CallTensors& inputs);

  /// The hooks, unless it is idle.
  const Plan& plan() const noexcept { return *plan_; }
  /// The call's index for the hook at a place of the plan, fixed on entry.
  std::int64_t index_of(std::size_t place) const noexcept {
    return indices_.many == nullptr ? indices_.few[place] : indices_.many[place];
  }
  /// Calls a function that runs hooks, and no forward.
  template <class Function>
  void run_hooks(const Function& function) {
    firing_ = true;
    function();
    firing_ = false;
  }

 private:
  /// The inputs as the module got them, for hooks after forward.
  struct Inputs {
    c10::SmallVector<at::Tensor, 1> tensors;
    const CallTensors* unknown = nullptr;  // the inputs, if they contain values of unknown types
  };

  /// One for each hook of the plan.
  struct Indices {
    std::array<std::int64_t, 4> few;  // not initialised: most modules have one hook
    std::unique_ptr<std::int64_t[]> many;
  };

  void count(const Plan& plan, ThreadState& state);
  std::int64_t* many_indices(std::size_t size);
  void end() noexcept;
  void fire(std::size_t begin, std::size_t end, CallTensors* inputs, CallTensors* outputs);
  void alias_inputs(CallTensors& inputs);
  void keep_inputs(CallTensors& inputs);

  Gate* gate_;  // null once it owns the plan
  const Plan* plan_ = nullptr;
  ThreadState* state_;
  Call* outer_ = nullptr;  // of this thread
  bool firing_ = false;    // hooks are running, and not forward
  bool hands_on_ = false;  // see `hand_on`
  Indices indices_;
  std::optional<Inputs> inputs_;
  std::unique_ptr<CallGradients> gradients_;  // null if no hook asks for gradients
  std::shared_ptr<const Plan> owned_;
};

}  // namespace torchtap::hooks::detail
