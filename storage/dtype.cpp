// Names of dtypes, from the table in dtype_table.cpp.
#include <torchtap/storage/detail/dtype_table.hpp>
#include <torchtap/storage/dtype.hpp>

namespace torchtap::storage {

std::string dtype_name(c10::ScalarType type) {
  const detail::Dtype* dtype = detail::dtype_by_type(type);
  return dtype == nullptr ? "" : dtype->python;
}

std::optional<c10::ScalarType> dtype_of(const std::string& name) {
  const detail::Dtype* dtype = detail::dtype_by_name(name);
  if (dtype == nullptr) return std::nullopt;
  return dtype->type;
}

std::vector<c10::ScalarType> dtypes() {
  std::vector<c10::ScalarType> types;
  for (const auto& dtype : detail::dtype_table()) types.push_back(dtype.type);
  return types;
}

}  // namespace torchtap::storage
