// The table of dtypes.
#include <algorithm>
#include <cctype>

#include <torchtap/base/dtypes.hpp>

namespace torchtap::base {
namespace {

/// By c10's name, because an older LibTorch lacks the newer enumerators.
struct DtypeRow {
  const char* c10;
  const char* python;
  const char* storage;
  const char* npy;
  const char* safetensors;
};

constexpr DtypeRow kDtypes[] = {
    {"Byte", "uint8", "ByteStorage", "u1", "U8"},
    {"Char", "int8", "CharStorage", "i1", "I8"},
    {"Short", "int16", "ShortStorage", "i2", "I16"},
    {"Int", "int32", "IntStorage", "i4", "I32"},
    {"Long", "int64", "LongStorage", "i8", "I64"},
    {"Half", "float16", "HalfStorage", "f2", "F16"},
    {"Float", "float32", "FloatStorage", "f4", "F32"},
    {"Double", "float64", "DoubleStorage", "f8", "F64"},
    {"Bool", "bool", "BoolStorage", "b1", "BOOL"},
    {"BFloat16", "bfloat16", "BFloat16Storage", "", "BF16"},
    {"ComplexFloat", "complex64", "ComplexFloatStorage", "c8", ""},
    {"ComplexDouble", "complex128", "ComplexDoubleStorage", "c16", ""},
    {"ComplexHalf", "complex32", nullptr, "", ""},
    {"UInt16", "uint16", nullptr, "u2", "U16"},
    {"UInt32", "uint32", nullptr, "u4", "U32"},
    {"UInt64", "uint64", nullptr, "u8", "U64"},
    {"Float8_e5m2", "float8_e5m2", nullptr, "", "F8_E5M2"},
    {"Float8_e4m3fn", "float8_e4m3fn", nullptr, "", "F8_E4M3"},
    {"Float8_e5m2fnuz", "float8_e5m2fnuz", nullptr, "", ""},
    {"Float8_e4m3fnuz", "float8_e4m3fnuz", nullptr, "", ""},
    {"Float8_e8m0fnu", "float8_e8m0fnu", nullptr, "", ""},
};

constexpr int kScalarTypes = static_cast<int>(c10::ScalarType::NumOptions);

template <class Predicate>
const Dtype* find_dtype(Predicate predicate) {
  const auto& all = dtypes();
  const auto found = std::find_if(all.begin(), all.end(), predicate);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<Dtype>& dtypes() {
  // Never destroyed: threads may save while the program ends.
  static const std::vector<Dtype>& known = *new const std::vector<Dtype>([] {
    std::vector<Dtype> found;
    for (int i = 0; i < kScalarTypes; ++i) {
      const auto type = static_cast<c10::ScalarType>(i);
      const std::string name = c10::toString(type);
      for (const DtypeRow& row : kDtypes) {
        if (name == row.c10) found.push_back({type, row.python, row.storage, row.npy, row.safetensors});
      }
    }
    return found;
  }());
  return known;
}

const Dtype* dtype_by_type(c10::ScalarType type) {
  return find_dtype([&](const Dtype& dtype) { return dtype.type == type; });
}

const Dtype* dtype_by_name(const std::string& python) {
  return find_dtype([&](const Dtype& dtype) { return python == dtype.python; });
}

const Dtype* dtype_by_storage(const std::string& storage) {
  return find_dtype([&](const Dtype& dtype) { return dtype.storage != nullptr && storage == dtype.storage; });
}

std::string dtype_text(c10::ScalarType type) {
  if (const Dtype* const dtype = dtype_by_type(type)) return dtype->python;
  std::string name = c10::toString(type);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return name;
}

std::optional<c10::ScalarType> dtype_of_text(const std::string& text) {
  for (int i = 0; i < kScalarTypes; ++i) {
    const auto type = static_cast<c10::ScalarType>(i);
    if (dtype_text(type) == text) return type;
  }
  return std::nullopt;
}

}  // namespace torchtap::base
