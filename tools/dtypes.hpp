#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace torchtap::tools {

/// A dtype and what it is called elsewhere.
struct Dtype {
  c10::ScalarType type;
  std::string name;         ///< "float32"
  std::string npy;          ///< "f4", without the byte order; "" if NumPy has none
  std::string safetensors;  ///< "F32"; "" if the format has none
};

/// Null if `type` is none of those that files hold (quantized types).
const Dtype* find_dtype(c10::ScalarType type) noexcept;
/// "float32" for `at::kFloat`; the name that c10 has for types that files do not hold.
std::string dtype_name(c10::ScalarType type);
/// The dtype called `name` ("float32", "float", "int64"). Throws `c10::ValueError` listing those there are.
c10::ScalarType parse_dtype(const std::string& name);

}  // namespace torchtap::tools
