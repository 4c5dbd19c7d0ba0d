#include "dtypes.hpp"

#include <c10/util/Exception.h>

#include <array>

namespace torchtap::tools {
namespace {

constexpr std::array kDtypes{
    Dtype{c10::ScalarType::Float, "float32", "f4", "F32"},
    Dtype{c10::ScalarType::Double, "float64", "f8", "F64"},
    Dtype{c10::ScalarType::Half, "float16", "f2", "F16"},
    Dtype{c10::ScalarType::BFloat16, "bfloat16", "", "BF16"},
    Dtype{c10::ScalarType::Long, "int64", "i8", "I64"},
    Dtype{c10::ScalarType::Int, "int32", "i4", "I32"},
    Dtype{c10::ScalarType::Short, "int16", "i2", "I16"},
    Dtype{c10::ScalarType::Char, "int8", "i1", "I8"},
    Dtype{c10::ScalarType::Byte, "uint8", "u1", "U8"},
    Dtype{c10::ScalarType::Bool, "bool", "b1", "BOOL"},
    Dtype{c10::ScalarType::ComplexFloat, "complex64", "c8", ""},
    Dtype{c10::ScalarType::ComplexDouble, "complex128", "c16", ""},
    Dtype{c10::ScalarType::ComplexHalf, "complex32", "", ""},
};

}  // namespace

const Dtype* find_dtype(c10::ScalarType type) noexcept {
  for (const auto& dtype : kDtypes) {
    if (dtype.type == type) return &dtype;
  }
  return nullptr;
}

std::string dtype_name(c10::ScalarType type) {
  const Dtype* dtype = find_dtype(type);
  return dtype != nullptr ? dtype->name : c10::toString(type);
}

c10::ScalarType parse_dtype(const std::string& name) {
  if (name == "float") return c10::ScalarType::Float;
  if (name == "double") return c10::ScalarType::Double;
  if (name == "half") return c10::ScalarType::Half;
  std::string known;
  for (const auto& dtype : kDtypes) {
    if (name == dtype.name) return dtype.type;
    known += std::string(known.empty() ? "" : ", ") + dtype.name;
  }
  TORCH_CHECK_VALUE(false, "\"", name, "\" is no dtype; expected one of ", known, ".");
}

}  // namespace torchtap::tools
