#pragma once

/// Runs the hooks of a call that has them on one side only: all before forward, or all after it.

#include <cstddef>

#include <torchtap/hooks/detail/call.hpp>

namespace torchtap::hooks::detail {

/// Runs the hooks on one side of a call, before or after forward, if no hook needs the other side. Unlike a
/// `Call` it leaves nothing behind that has to be carried from one side to the other.
class TORCHTAP_API OneSide {
 public:
  explicit OneSide(Gate& gate);
  ~OneSide();
  OneSide(const OneSide&) = delete;
  OneSide& operator=(const OneSide&) = delete;

  /// Whether the module has no hooks.
  bool idle() const noexcept { return plan_ == nullptr; }
  /// Whether the hooks before forward need the arguments.
  bool wants_inputs() const noexcept { return plan_->forward_pre_begin != plan_->forward_pre_end; }

  /// Counts a forward of the root, if this is one, and runs the forward-pre hooks; may replace the tensors
  /// that `inputs` refers to.
  void before(CallTensors& inputs);
  /// Runs the forward hooks that see only outputs; may replace the tensors that `outputs` refers to.
  void after(CallTensors& outputs);

 private:
  void begin_outermost() noexcept;
  void fire(std::size_t begin, std::size_t end, Kind kind, CallTensors& tensors);

  Gate& gate_;
  ThreadState& state_;
  const Plan* plan_;
};

}  // namespace torchtap::hooks::detail
