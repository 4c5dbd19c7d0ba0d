#pragma once

/// The names of dtypes in files and manifests, which are Python's: "float32", "complex64".

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

namespace torchtap::storage {

/// "float32" for `at::kFloat`: as Python and manifests call a dtype. "" for one that no file can hold
/// (quantized types).
std::string dtype_name(c10::ScalarType type);
/// The dtype called `name` in files and manifests; nothing for another name, or for a dtype that this
/// LibTorch does not have.
std::optional<c10::ScalarType> dtype_of(const std::string& name);
/// All dtypes that files hold and this LibTorch has.
std::vector<c10::ScalarType> dtypes();

}  // namespace torchtap::storage
