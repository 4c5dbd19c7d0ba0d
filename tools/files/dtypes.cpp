#include "dtypes.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <limits>

namespace torchtap::tools {
namespace {

template <class From, class To>
at::Tensor to_signed(const at::Tensor& bytes, c10::ScalarType to) {
  const std::int64_t count = bytes.numel() / static_cast<std::int64_t>(sizeof(From));
  at::Tensor result = at::empty({count}, to);
  const auto* source = static_cast<const char*>(bytes.data_ptr());
  auto* target = result.data_ptr<To>();
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, source + i * static_cast<std::int64_t>(sizeof(From)), sizeof value);
    TORCH_CHECK_VALUE(value <= static_cast<std::uint64_t>(std::numeric_limits<To>::max()), "the value ",
                      value, " does not fit into int64, LibTorch's widest integer");
    target[i] = static_cast<To>(value);
  }
  return result;
}

}  // namespace

c10::ScalarType parse_dtype(const std::string& name) {
  if (name == "float") return c10::ScalarType::Float;
  if (name == "double") return c10::ScalarType::Double;
  if (name == "half") return c10::ScalarType::Half;
  if (const auto* const dtype = base::dtype_by_name(name)) return dtype->type;
  std::string known;
  for (const auto& dtype : base::dtypes()) known += (known.empty() ? "" : ", ") + std::string(dtype.python);
  TORCH_CHECK_VALUE(false, "\"", name, "\" is no dtype; expected one of ", known, ".");
}

at::Tensor widened(const at::Tensor& bytes, std::int64_t item) {
  return item == 2   ? to_signed<std::uint16_t, std::int32_t>(bytes, at::kInt)
         : item == 4 ? to_signed<std::uint32_t, std::int64_t>(bytes, at::kLong)
                     : to_signed<std::uint64_t, std::int64_t>(bytes, at::kLong);
}

}  // namespace torchtap::tools
