#include "json.hpp"

#include <ATen/Functions.h>

#include <iostream>

namespace torchtap::tools {
namespace {

/// `data` is contiguous; `at` is the next element to read.
template <class T>
Json nested(const T*& at, at::IntArrayRef sizes) {
  if (sizes.empty()) return *at++;
  Json list = Json::array();
  for (std::int64_t i = 0; i < sizes[0]; ++i) list.push_back(nested(at, sizes.slice(1)));
  return list;
}

template <class T>
Json nested(const at::Tensor& tensor, at::ScalarType as) {
  const at::Tensor plain = tensor.to(as).contiguous();
  const T* data = plain.data_ptr<T>();
  return nested(data, plain.sizes());
}

}  // namespace

Json to_json(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  if (tensor.is_complex()) return to_json(at::view_as_real(tensor.to(at::kComplexDouble).resolve_conj()));
  if (tensor.scalar_type() == at::kBool) return nested<bool>(tensor, at::kBool);
  if (at::isIntegralType(tensor.scalar_type(), false)) return nested<std::int64_t>(tensor, at::kLong);
  return nested<double>(tensor, at::kDouble);
}

void print(const Json& document) {
  std::cout << json::text(document) << '\n';
}

}  // namespace torchtap::tools
