#pragma once

/// The names of dtypes in files and manifests, which are Python's: "float32", "complex64".

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::storage {

/// The name of a dtype in Python and in manifests: "float32" for `at::kFloat`. "" for a dtype that no file
/// can hold (quantized types).
TORCHTAP_API std::string dtype_name(c10::ScalarType type);
/// The dtype called `name` in files and manifests; nothing for another name, or for a dtype that this
/// LibTorch does not have.
TORCHTAP_API std::optional<c10::ScalarType> dtype_of(const std::string& name);
/// All dtypes that files hold and this LibTorch has.
TORCHTAP_API std::vector<c10::ScalarType> dtypes();

}  // namespace torchtap::storage
