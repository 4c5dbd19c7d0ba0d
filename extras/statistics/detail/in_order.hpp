#pragma once

/// Reads the elements of a strided sample in the order of its dimensions.

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>

#include <torchtap/reductions/extend/own_reduction.hpp>

namespace torchtap::statistics::detail {

using reductions::extend::Memory;

/// Calls `f(elements, from)` with all elements of a strided sample in the CPU's memory in the order of its
/// dimensions, in pieces of which `from` is the first element, and in several threads. Elements of
/// channels-last and other transposed samples are transposed piece by piece in a small buffer.
void each_in_order(const at::Tensor& sample, c10::function_ref<void(const Memory&, std::int64_t)> f);

}  // namespace torchtap::statistics::detail
