#include "dtypes.hpp"

#include <c10/util/Exception.h>

#include <torchtap/storage/dtype.hpp>

namespace torchtap::tools {
namespace {

/// How NumPy and safetensors call a dtype, by the name that it has everywhere else.
struct Foreign {
  const char* name;
  const char* npy;          // "f4", without the byte order; "" if NumPy has none
  const char* safetensors;  // "F32"; "" if the format has none
};

constexpr Foreign kForeign[] = {
    {"float32", "f4", "F32"},
    {"float64", "f8", "F64"},
    {"float16", "f2", "F16"},
    {"bfloat16", "", "BF16"},
    {"int64", "i8", "I64"},
    {"int32", "i4", "I32"},
    {"int16", "i2", "I16"},
    {"int8", "i1", "I8"},
    {"uint8", "u1", "U8"},
    {"bool", "b1", "BOOL"},
    {"complex64", "c8", ""},
    {"complex128", "c16", ""},
    {"uint16", "u2", "U16"},
    {"uint32", "u4", "U32"},
    {"uint64", "u8", "U64"},
    {"float8_e5m2", "", "F8_E5M2"},
    {"float8_e4m3fn", "", "F8_E4M3"},
};

Dtype named(c10::ScalarType type) {
  const std::string name = storage::dtype_name(type);
  for (const auto& foreign : kForeign) {
    if (name == foreign.name) return {type, name, foreign.npy, foreign.safetensors};
  }
  return {type, name, "", ""};
}

const std::vector<Dtype>& dtypes() {
  static const std::vector<Dtype> all = [] {
    std::vector<Dtype> found;
    for (const auto type : storage::dtypes()) found.push_back(named(type));
    return found;
  }();
  return all;
}

}  // namespace

const Dtype* find_dtype(c10::ScalarType type) noexcept {
  for (const auto& dtype : dtypes()) {
    if (dtype.type == type) return &dtype;
  }
  return nullptr;
}

std::string dtype_name(c10::ScalarType type) {
  const std::string name = storage::dtype_name(type);
  return name.empty() ? c10::toString(type) : name;
}

c10::ScalarType parse_dtype(const std::string& name) {
  if (name == "float") return c10::ScalarType::Float;
  if (name == "double") return c10::ScalarType::Double;
  if (name == "half") return c10::ScalarType::Half;
  if (const auto type = storage::dtype_of(name)) return *type;
  std::string known;
  for (const auto& dtype : dtypes()) known += (known.empty() ? "" : ", ") + dtype.name;
  TORCH_CHECK_VALUE(false, "\"", name, "\" is no dtype; expected one of ", known, ".");
}

}  // namespace torchtap::tools
