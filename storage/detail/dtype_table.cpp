// The table of dtypes.
#include <algorithm>

#include <torchtap/storage/detail/dtype_table.hpp>

namespace torchtap::storage::detail {
namespace {

/// By c10's name, because an older LibTorch lacks the newer enumerators.
struct Row {
  const char* c10;
  const char* python;
  const char* storage;
};

constexpr Row kRows[] = {
    {"Byte", "uint8", "ByteStorage"},
    {"Char", "int8", "CharStorage"},
    {"Short", "int16", "ShortStorage"},
    {"Int", "int32", "IntStorage"},
    {"Long", "int64", "LongStorage"},
    {"Half", "float16", "HalfStorage"},
    {"Float", "float32", "FloatStorage"},
    {"Double", "float64", "DoubleStorage"},
    {"Bool", "bool", "BoolStorage"},
    {"BFloat16", "bfloat16", "BFloat16Storage"},
    {"ComplexFloat", "complex64", "ComplexFloatStorage"},
    {"ComplexDouble", "complex128", "ComplexDoubleStorage"},
    {"ComplexHalf", "complex32", nullptr},
    {"UInt16", "uint16", nullptr},
    {"UInt32", "uint32", nullptr},
    {"UInt64", "uint64", nullptr},
    {"Float8_e5m2", "float8_e5m2", nullptr},
    {"Float8_e4m3fn", "float8_e4m3fn", nullptr},
    {"Float8_e5m2fnuz", "float8_e5m2fnuz", nullptr},
    {"Float8_e4m3fnuz", "float8_e4m3fnuz", nullptr},
    {"Float8_e8m0fnu", "float8_e8m0fnu", nullptr},
};

template <class Predicate>
const Dtype* find(Predicate predicate) {
  const auto& all = dtype_table();
  const auto found = std::find_if(all.begin(), all.end(), predicate);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<Dtype>& dtype_table() {
  static const std::vector<Dtype> known = [] {
    std::vector<Dtype> found;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
      const auto type = static_cast<c10::ScalarType>(i);
      const std::string name = c10::toString(type);
      for (const Row& row : kRows) {
        if (name == row.c10) found.push_back({type, row.python, row.storage});
      }
    }
    return found;
  }();
  return known;
}

const Dtype* dtype_by_type(c10::ScalarType type) {
  return find([&](const Dtype& dtype) { return dtype.type == type; });
}

const Dtype* dtype_by_name(const std::string& python) {
  return find([&](const Dtype& dtype) { return python == dtype.python; });
}

const Dtype* dtype_by_storage(const std::string& storage) {
  return find([&](const Dtype& dtype) { return dtype.storage != nullptr && storage == dtype.storage; });
}

}  // namespace torchtap::storage::detail
