#pragma once

// Decides whether a tensor has strided elements of its own.

#include <ATen/core/Tensor.h>

#include <string>

namespace torchtap::base {

/// Whether it is a wrapper of functorch's vmap or grad, which ends with their function.
inline bool is_wrapper(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  return keys.has(c10::DispatchKey::FuncTorchBatched) || keys.has(c10::DispatchKey::Batched) ||
         keys.has(c10::DispatchKey::FuncTorchGradWrapper);
}

/// Whether a defined tensor has elements of its own, in strides. Code must not even ask others for their
/// sizes: sparse and nested tensors, those of Python classes that compute themselves (`__torch_dispatch__`:
/// DTensor, FakeTensor), and the wrappers of functorch's vmap and grad, which end before their recorded
/// copies are read.
inline bool is_strided(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  return tensor.layout() == c10::kStrided && !keys.has(c10::DispatchKey::NestedTensor) &&
         !keys.has(c10::DispatchKey::Python) && !is_wrapper(tensor);
}

/// The tensor's layout and the remedy: "layout Sparse; convert it with to_dense() first".
inline std::string instead_of_strided(const at::Tensor& tensor) {
  if (tensor.layout() != c10::kStrided) {
    return c10::str("layout ", tensor.layout(), "; convert it with to_dense() first");
  }
  if (tensor.key_set().has(c10::DispatchKey::NestedTensor)) {
    return "a nested tensor; pad it with to_padded_tensor() first";
  }
  if (tensor.key_set().has(c10::DispatchKey::Python)) {
    return "of a Python class with __torch_dispatch__ (DTensor, FakeTensor), which has no elements of its "
           "own; "
           "convert it first, a DTensor with to_local()";
  }
  return "a wrapper that vmap or grad made; record outside of them";
}

}  // namespace torchtap::base
