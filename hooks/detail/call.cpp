// Runs the hooks around one call of a module.

#include <ATen/core/grad_mode.h>
#include <c10/macros/Macros.h>

#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/detail/call.hpp>
#include <torchtap/hooks/detail/call_gradients.hpp>
#include <torchtap/hooks/detail/registry.hpp>
#include <torchtap/hooks/detail/run_hooks.hpp>
#include <torchtap/hooks/detail/thread_state.hpp>

namespace torchtap::hooks::detail {

// `flatten`: what these call is compiled into them, unless it is marked otherwise.
[[gnu::flatten]] Call::Call(Gate& gate) : gate_(&gate), state_(&ThreadState::here()) {
  ThreadState& state = *state_;
  state.readers.enter(gate);
  const Plan* const plan = gate.plan.load();
  plan_ = plan;
  if (plan == nullptr) return;
  outer_ = std::exchange(state.innermost, this);
  if (state.depth++ == 0) state.begin_outermost();
  state.begin_forwards(*plan);
  count(*plan, state);
}

C10_ALWAYS_INLINE void Call::count(const Plan& plan, ThreadState& state) {
  std::int64_t* index = indices_.few.data();
  if (C10_UNLIKELY(plan.hooks.size() > indices_.few.size())) index = many_indices(plan.hooks.size());
  for (const auto& hook : plan.hooks) {
    *index++ = hook->is_scope || hook->on_root ? 0 : state.next_call_index(*hook);
  }
}

C10_NOINLINE std::int64_t* Call::many_indices(std::size_t size) {
  indices_.many = std::make_unique<std::int64_t[]>(size);
  return indices_.many.get();
}

C10_ALWAYS_INLINE void Call::end() noexcept {
  if (C10_LIKELY(state_->innermost == this)) {
    state_->innermost = outer_;
  } else {  // fibers: the calls of several stacks end in any order
    Call* inner = state_->innermost;
    while (inner->outer_ != this) inner = inner->outer_;
    inner->outer_ = outer_;
  }
  if (--state_->depth == 0 && !state_->ending.empty()) state_->run_ending();
}

[[gnu::flatten]] Call::~Call() {
  if (gate_ == nullptr) return;
  if (plan_ != nullptr) end();
  leave(*state_, *gate_);
}

bool Call::is_inside(const void* module) noexcept {
  for (const Call* call = ThreadState::here().innermost; call != nullptr; call = call->outer_) {
    if (!call->firing_ && call->plan_->hooks.front()->module == module) return true;
  }
  return false;
}

bool Call::hands_on(const void* module) noexcept {
  Call* call = ThreadState::here().innermost;
  return call != nullptr && std::exchange(call->hands_on_, false) &&
         call->plan_->hooks.front()->module == module;
}

void Call::own_plan() {
  if (plan_ != nullptr) {
    owned_ = plan_->shared_from_this();
    end();
  }
  leave(*state_, *gate_);
  gate_ = nullptr;
}

C10_ALWAYS_INLINE void Call::fire(std::size_t begin, std::size_t end, CallTensors* inputs,
                                  CallTensors* outputs) {
  run_hooks([&] {
    for (std::size_t i = begin; i < end; ++i) {
      const Hook& hook = *plan_->hooks[i];
      if (hook.active.load(std::memory_order_relaxed)) {
        run(hook, index_of(i), hook.kind == Kind::forward_output ? nullptr : inputs, outputs);
      }
    }
  });
}

[[gnu::flatten]] void Call::before(CallTensors& inputs) {
  if (plan_->forward_pre_end != plan_->forward_pre_begin) {
    fire(plan_->forward_pre_begin, plan_->forward_pre_end, &inputs, nullptr);
  }
  if (C10_UNLIKELY(plan_->has_backward_input())) {
    alias_inputs(inputs);
  } else {
    put_back(inputs, CallTensors::Of::inputs, *plan_);
  }
  if (plan_->sees_inputs) keep_inputs(inputs);
}

/// Aliases that an argument cannot take up are none of the program's mistakes: it gets its own tensors.
C10_NOINLINE void Call::alias_inputs(CallTensors& inputs) {
  gradients_ = std::make_unique<CallGradients>(*this);
  gradients_->alias_inputs(inputs);
  for (;;) {
    try {
      return put_back(inputs, CallTensors::Of::inputs, *plan_);
    } catch (const c10::NotImplementedError& error) {
      if (!gradients_->take_back_aliases(inputs, error.msg())) throw;
    }
  }
}

C10_NOINLINE void Call::keep_inputs(CallTensors& inputs) {
  inputs_.emplace();
  inputs_->tensors.append(inputs.begin(), inputs.end());
  if (inputs.has_unknown()) inputs_->unknown = &inputs;
}

[[gnu::flatten]] void Call::after(CallTensors& outputs) {
  if (gradients_ != nullptr) gradients_->end_inputs();
  if (inputs_.has_value()) {
    CallTensors inputs;
    for (auto& tensor : inputs_->tensors) inputs.push_back(tensor);
    if (inputs_->unknown != nullptr) inputs.push_unknown_of(*inputs_->unknown);
    fire(plan_->forward_pre_end, plan_->forward_end, &inputs, &outputs);
  } else {
    fire(plan_->forward_pre_end, plan_->forward_end, nullptr, &outputs);
  }
  if (plan_->has_backward_output() && at::GradMode::is_enabled()) {
    if (gradients_ == nullptr) gradients_ = std::make_unique<CallGradients>(*this);
    gradients_->hook_outputs(outputs);
  }
  put_back(outputs, CallTensors::Of::outputs, *plan_);
}

void Call::after(CallTensors& outputs, CallTensors& inputs) {
  gradients_.reset();
  if (plan_->sees_inputs) keep_inputs(inputs);
  after(outputs);
}

void leave(ThreadState& state, Gate& gate) noexcept {
  state.readers.leave(gate);
  if (C10_UNLIKELY(Registry::pending.load())) Registry::instance().left();
}

}  // namespace torchtap::hooks::detail
