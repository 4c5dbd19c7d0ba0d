#pragma once

/// Collects the tensors inside a `torch::nn::AnyValue`.

#include <torch/nn/module.h>

#include <torchtap/hooks/values.hpp>

namespace torchtap::hooks::detail {

/// Adds the tensors inside `value`. Records a type that is neither built in nor registered as unknown.
void collect(torch::nn::AnyValue& value, CallTensors& tensors);

}  // namespace torchtap::hooks::detail
