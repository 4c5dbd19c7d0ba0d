#pragma once

/// Collects the tensors inside a `c10::IValue`, such as an argument or the result of a TorchScript call.

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <torchtap/hooks/values.hpp>

namespace torchtap::hooks::detail {

/// Adds the tensors inside an argument or the result of a TorchScript call: in tuples, lists, the values of
/// dicts, optionals and the attributes of script objects, however nested. Does not search modules passed as
/// arguments. `type` is the declared type: an absent optional keeps the slots of the tensors that it might
/// hold.
///
/// Lists, dicts and tuples may be shared: `tensors.put_back()` makes a new one if a hook replaced a tensor in
/// it, and never changes the old one.
TORCHTAP_API void collect(c10::IValue& value, const c10::Type& type, CallTensors& tensors);

}  // namespace torchtap::hooks::detail
