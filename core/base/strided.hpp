#pragma once

// Decides whether a tensor has strided elements of its own, and where they lie.

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <cstdint>
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

/// Whether an ordinary tensor of the CPU, defined and with memory. One that stands for something else
/// (conjugate, negative, wrapped by functorch or in Python) has dispatch keys that such a tensor lacks.
inline bool is_usual_on_cpu(const at::Tensor& tensor) {
  constexpr auto kUsual = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  return tensor.key_set() - kUsual == c10::DispatchKeySet(c10::DispatchKey::CPU) &&
         static_cast<bool>(tensor.unsafeGetTensorImpl()->unsafe_storage());
}

/// Whether its elements can be copied as bytes from its memory.
inline bool is_plain_on_cpu(const at::Tensor& tensor) {
  return is_usual_on_cpu(tensor) && tensor.is_contiguous();
}

/// Its elements, to be read: unlike `data_ptr`, this does not make a copy of memory that is shared until
/// somebody writes to it.
inline const char* bytes_in(const at::Tensor& tensor) {
  const void* const storage = tensor.unsafeGetTensorImpl()->unsafe_storage().data();
  return static_cast<const char*>(storage) +
         tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize());
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
