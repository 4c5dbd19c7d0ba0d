#pragma once

/// Runs one hook of a call, and puts back into the call what hooks replaced.

#include <c10/macros/Macros.h>

#include <cstdint>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/detail/plan.hpp>
#include <torchtap/hooks/event.hpp>

namespace torchtap::hooks::detail {

C10_ALWAYS_INLINE void run(const Hook& hook, std::int64_t call_index, CallTensors* inputs,
                           CallTensors* outputs) {
  CallEvent event(hook.kind, hook.path, hook.type, call_index);
  event.set_forward(inputs, outputs);
  hook.callback(event);
}

/// Says which module had a hook that replaced a tensor by one that is not there.
[[noreturn]] C10_NOINLINE inline void refuse_undefined(const Plan& plan, CallTensors::Of of) {
  const Hook& hook = *plan.hooks.back();
  TORCH_CHECK_VALUE(false, "hooks: a hook of \"", hook.path, "\" (", hook.type, ") replaced a tensor of the ",
                    of == CallTensors::Of::inputs ? "inputs" : "outputs",
                    " by an undefined one; assign a tensor, say zeros.");
}

/// Names the module in an error about a tensor of its call.
C10_NOINLINE inline void add_module(c10::Error& error, const Plan& plan) {
  const Hook& first = *plan.hooks.front();
  error.add_context(c10::str("In a call of \"", first.path, "\" (", first.type, ")"));
}

/// Puts back what hooks replaced. Names the module in the error about a tensor that cannot be replaced.
C10_ALWAYS_INLINE void put_back(CallTensors& tensors, CallTensors::Of of, const Plan& plan) {
  if (C10_UNLIKELY(tensors.lost_one())) refuse_undefined(plan, of);
  try {
    tensors.put_back(of);
  } catch (c10::Error& error) {
    add_module(error, plan);
    throw;
  }
}

}  // namespace torchtap::hooks::detail
