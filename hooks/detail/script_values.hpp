#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <torchtap/hooks/values.hpp>

namespace torchtap::hooks::detail {

/// Adds the tensors inside an argument or the result of a TorchScript call: in tuples, lists, the values of
/// dicts, optionals and the attributes of script objects, however nested. Modules that are passed around are
/// left alone. `type` is the declared one: an absent optional keeps the places of the tensors that it might
/// hold.
///
/// Lists, dicts and tuples may be shared with others: one of which a hook has replaced a tensor is made anew
/// by `tensors.put_back()`, never changed.
void collect(c10::IValue& value, const c10::Type& type, CallTensors& tensors);

}  // namespace torchtap::hooks::detail
