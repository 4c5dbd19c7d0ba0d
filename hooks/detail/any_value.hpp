#pragma once

#include <torch/nn/module.h>

#include <torchtap/hooks/values.hpp>

namespace torchtap::hooks::detail {

/// Adds the tensors inside `value`, whose static type only it knows. A type that is neither built in nor
/// registered is noted as unknown.
void collect(torch::nn::AnyValue& value, CallTensors& tensors);

}  // namespace torchtap::hooks::detail
