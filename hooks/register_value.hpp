#pragma once

/// Registers types of values that pass through a `Sequential` or `AnyModule`, so that hooks see their
/// tensors.

#include <torch/nn/module.h>

#include <functional>
#include <typeinfo>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/values.hpp>

namespace torchtap::hooks {
namespace detail {

using AnyValueVisitor = std::function<void(torch::nn::AnyValue&, CallTensors&)>;

/// Registers the visitor of a type. Thread-safe; registering a type again changes nothing.
TORCHTAP_API void register_value_visitor(const std::type_info& type, AnyValueVisitor visitor);

}  // namespace detail

/// Lets hooks see the tensors in values of type `T`, by `Visit<T>`, where these pass between entries of a
/// `Sequential` or through an `AnyModule`. Call it once, before the model runs.
///
/// Not needed for tensors, for tuples, pairs, vectors and optionals of up to eight of them, and for maps from
/// strings, `c10::Dict`, `c10::List`, `c10::IValue`, `at::TensorList` and `PackedSequence`.
template <class T>
void register_value() {
  static_assert(
      !detail::is_unknown_v<T>,
      "torchtap::hooks::register_value<T>: specialise torchtap::hooks::Visit<T> first, which names the "
      "tensors in a T; leave its body empty if there are none.");
  detail::register_value_visitor(typeid(T), [](torch::nn::AnyValue& value, detail::CallTensors& tensors) {
    detail::Collector{tensors}(*value.try_get<T>());
  });
}

}  // namespace torchtap::hooks
