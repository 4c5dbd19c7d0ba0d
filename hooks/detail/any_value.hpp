#pragma once

/// Collects the tensors inside an argument or the result of a call through a holder.

#include <c10/macros/Macros.h>
#include <torch/nn/modules/container/any.h>

#include <typeinfo>

#include <torchtap/base/expose.hpp>
#include <torchtap/hooks/values.hpp>

namespace torchtap::base {

struct AnyValueContent {
  friend auto exposed(AnyValueContent);
};
struct TensorHolderValue {
  friend auto exposed(TensorHolderValue);
};
template struct Expose<AnyValueContent, &torch::nn::AnyValue::content_>;
template struct Expose<TensorHolderValue, &torch::nn::AnyValue::Holder<at::Tensor>::value>;

}  // namespace torchtap::base

namespace torchtap::hooks::detail {

/// Collects what is no tensor, or is one of a library with a type_info of its own. Records a type that is
/// neither built in nor registered as unknown.
void collect_other(torch::nn::AnyValue& value, CallTensors& tensors);

template <class Holder, class T>
T& held(torch::nn::AnyValue& value, T Holder::*member) {
  return static_cast<Holder&>(*(value.*exposed(base::AnyValueContent{}))).*member;
}

/// Adds the tensors inside `value`, which must stay in place until `tensors.put_back()`.
C10_ALWAYS_INLINE void collect(torch::nn::AnyValue& value, CallTensors& tensors) {
  if (C10_LIKELY(&value.type_info() == &typeid(at::Tensor))) {
    // AnyValue::try_get hashes two type names per call; the type is already known here.
    tensors.push_back(held(value, exposed(base::TensorHolderValue{})));
  } else {
    collect_other(value, tensors);
  }
}

}  // namespace torchtap::hooks::detail
