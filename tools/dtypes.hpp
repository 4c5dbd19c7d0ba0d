#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include <torchtap/base/dtypes.hpp>

namespace torchtap::tools {

using base::dtype_text;

/// The dtype called `name` ("float32", "float", "int64"). Throws `c10::ValueError` listing those there are.
c10::ScalarType parse_dtype(const std::string& name);

}  // namespace torchtap::tools
