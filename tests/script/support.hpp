#pragma once

#include <boost/test/unit_test.hpp>
#include <torch/script.h>

#include <map>
#include <string>
#include <vector>

#include <torchtap/storage/file.hpp>

namespace torchtap_test {

/// The path of a file that models.py wrote.
inline std::string file(const std::string& name) {
  return std::string(TORCHTAP_TEST_MODELS) + "/" + name + ".pt";
}

/// "resnet18.script", freshly loaded each time.
inline torch::jit::Module load(const std::string& name) {
  return torch::jit::load(file(name));
}

/// The inputs of the model called `name`.
inline std::vector<c10::IValue> arguments(const std::string& name) {
  const auto arguments = torch::jit::load(file(name + ".arguments")).attr("arguments");
  return arguments.toTupleRef().elements().vec();
}

/// All tensors in a value, in order.
inline void flatten(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) tensors.push_back(value.toTensor());
  if (value.isTuple()) {
    for (const auto& part : value.toTupleRef().elements()) flatten(part, tensors);
  } else if (value.isList()) {
    for (const auto& part : value.toListRef()) flatten(part, tensors);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) flatten(entry.value(), tensors);
  }
}
inline std::vector<at::Tensor> flat(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  flatten(value, tensors);
  return tensors;
}

inline bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].sizes() != b[i].sizes() || !at::equal(a[i], b[i])) return false;
  }
  return true;
}

/// Runs backward from the sum of all floating point results.
inline void backward(const c10::IValue& result) {
  at::Tensor sum;
  for (const auto& tensor : flat(result)) {
    if (tensor.requires_grad()) sum = sum.defined() ? sum + tensor.sum() : tensor.sum();
  }
  sum.backward();
}

}  // namespace torchtap_test
