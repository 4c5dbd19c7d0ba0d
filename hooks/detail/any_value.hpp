#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <torchtap/hooks/values.hpp>
#include <typeinfo>

namespace torchtap::hooks::detail {

using AnyValueVisitor = std::function<void(torch::nn::AnyValue&, Tensors&)>;

/// Adds the tensors inside `value`, whose static type only it knows. A type that is neither built in nor
/// registered is noted as unknown.
void collect(torch::nn::AnyValue& value, Tensors& tensors);

/// Teaches `collect` a type. Thread-safe; registering a type again changes nothing.
void register_value_visitor(const std::type_info& type, AnyValueVisitor visitor);

}  // namespace torchtap::hooks::detail

namespace torchtap::hooks {

/// Makes values of type `T` transparent where they pass between entries of a `Sequential`, with `Visit<T>`.
///
/// Not needed for tensors and for tuples, pairs, vectors and optionals of up to eight of them.
template <class T>
void register_value() {
  detail::register_value_visitor(typeid(T), [](torch::nn::AnyValue& value, Tensors& tensors) {
    detail::Collector{tensors}(*value.try_get<T>());
  });
}

}  // namespace torchtap::hooks
