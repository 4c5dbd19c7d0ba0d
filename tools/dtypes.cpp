#include "dtypes.hpp"

#include <c10/util/Exception.h>

namespace torchtap::tools {

c10::ScalarType parse_dtype(const std::string& name) {
  if (name == "float") return c10::ScalarType::Float;
  if (name == "double") return c10::ScalarType::Double;
  if (name == "half") return c10::ScalarType::Half;
  if (const auto* const dtype = base::dtype_by_name(name)) return dtype->type;
  std::string known;
  for (const auto& dtype : base::dtypes()) known += (known.empty() ? "" : ", ") + std::string(dtype.python);
  TORCH_CHECK_VALUE(false, "\"", name, "\" is no dtype; expected one of ", known, ".");
}

}  // namespace torchtap::tools
