#pragma once

// How many multiply-accumulates an operation makes, by its shapes.

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>

#include <torchtap/views/report/options.hpp>

namespace torchtap::views::report::detail {

/// The formula that counts an operation's multiply-accumulates. Null if it has no formula: either it does no
/// such work, or the operations that it calls are counted instead.
const Formula* built_in_formula(const std::string& name);

/// Whether an operation without a formula may still make many multiply-accumulates: one of another library
/// than LibTorch, one with quantized weights, a transform or a factorisation.
bool is_heavy(const std::string& name);

}  // namespace torchtap::views::report::detail
