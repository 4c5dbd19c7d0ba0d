#pragma once

// Dtypes by name, and integers whose dtype LibTorch lacks.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include <torchtap/base/dtypes.hpp>

namespace torchtap::tools {

using base::dtype_text;

/// The dtype called `name` ("float32", "float", "int64"). Throws `c10::ValueError` listing those there are.
c10::ScalarType parse_dtype(const std::string& name);

/// Unsigned integers of `item` bytes (2, 4 or 8) as int32 or int64, because older LibTorch lacks their
/// dtypes. Throws `c10::ValueError` if one does not fit.
at::Tensor widened(const at::Tensor& bytes, std::int64_t item);

}  // namespace torchtap::tools
