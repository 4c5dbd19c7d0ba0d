#pragma once

#include <torch/torch.h>

#include <vector>

/// Helpers of several hook tests.
namespace support {

inline void flatten(const at::Tensor& tensor, std::vector<at::Tensor>& all) {
  all.push_back(tensor);
}
inline void flatten(double /*no tensor*/, std::vector<at::Tensor>& /*all*/) {}
inline void flatten(const torch::nn::ASMoutput& value, std::vector<at::Tensor>& all) {
  flatten(value.output, all);
  flatten(value.loss, all);
}
template <class... Ts>
void flatten(const std::tuple<Ts...>& values, std::vector<at::Tensor>& all) {
  std::apply([&](const auto&... parts) { (flatten(parts, all), ...); }, values);
}

template <class T>
std::vector<at::Tensor> flat(const T& value) {
  std::vector<at::Tensor> all;
  flatten(value, all);
  return all;
}

/// Bitwise equality, including everything that a caller can ask about.
inline bool identical(const at::Tensor& a, const at::Tensor& b, bool grad = true) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.device() == b.device() &&
         a.strides() == b.strides() && (!grad || a.requires_grad() == b.requires_grad()) && at::equal(a, b);
}

inline bool identical(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!identical(a[i], b[i])) return false;
  }
  return true;
}

/// The message of a LibTorch exception without its backtrace.
template <class Error, class Callable>
std::string message_of(Callable&& callable) {
  try {
    callable();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "(nothing was thrown)";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace support
