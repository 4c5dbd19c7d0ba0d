// Names of dtypes, from the table of the core.
#include <torchtap/base/dtypes.hpp>
#include <torchtap/storage/dtype.hpp>

namespace torchtap::storage {

std::string dtype_name(c10::ScalarType type) {
  const base::Dtype* dtype = base::dtype_by_type(type);
  return dtype == nullptr ? "" : dtype->python;
}

std::optional<c10::ScalarType> dtype_of(const std::string& name) {
  const base::Dtype* dtype = base::dtype_by_name(name);
  if (dtype == nullptr) return std::nullopt;
  return dtype->type;
}

std::vector<c10::ScalarType> dtypes() {
  std::vector<c10::ScalarType> types;
  for (const auto& dtype : base::dtypes()) types.push_back(dtype.type);
  return types;
}

}  // namespace torchtap::storage
