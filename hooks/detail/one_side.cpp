// Runs the hooks of one side of a call, for code that has no place for the other side.

#include <c10/util/SmallVector.h>

#include <torchtap/hooks/detail/one_side.hpp>
#include <torchtap/hooks/detail/run_hooks.hpp>
#include <torchtap/hooks/detail/thread_state.hpp>

namespace torchtap::hooks::detail {

OneSide::OneSide(Gate& gate) : gate_(gate), state_(ThreadState::here()) {
  state_.readers.enter(gate);
  plan_ = gate.plan.load();
}

OneSide::~OneSide() {
  leave(state_, gate_);
}

void OneSide::before(CallTensors& inputs) {
  begin_outermost();
  state_.begin_forwards(*plan_);
  fire(plan_->forward_pre_begin, plan_->forward_pre_end, Kind::forward_pre, inputs);
  put_back(inputs, CallTensors::Of::inputs, *plan_);
}

void OneSide::after(CallTensors& outputs) {
  begin_outermost();
  fire(plan_->forward_pre_end, plan_->forward_end, Kind::forward_output, outputs);
  put_back(outputs, CallTensors::Of::outputs, *plan_);
}

void OneSide::begin_outermost() noexcept {
  if (state_.depth == 0) state_.begin_outermost();
}

void OneSide::fire(std::size_t begin, std::size_t end, Kind kind, CallTensors& tensors) {
  // Hooks of another kind may be attached while code runs that has the operators of one side only. They see
  // later forwards.
  const auto is_seen = [&](const Hook& hook) { return hook.kind == kind; };
  c10::SmallVector<std::int64_t, 4> indices;
  for (std::size_t i = begin; i < end; ++i) {
    const Hook& hook = *plan_->hooks[i];
    indices.push_back(hook.on_root || !is_seen(hook) ? 0 : state_.next_call_index(hook));
  }
  const bool is_before = kind == Kind::forward_pre;
  for (std::size_t i = begin; i < end; ++i) {
    const Hook& hook = *plan_->hooks[i];
    if (!is_seen(hook) || !hook.active.load(std::memory_order_relaxed)) continue;
    run(hook, indices[i - begin], is_before ? &tensors : nullptr, is_before ? nullptr : &tensors);
  }
}

}  // namespace torchtap::hooks::detail
