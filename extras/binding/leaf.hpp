#pragma once

// Lets C++ record the gradients of a Python model's parameters.

#include <ATen/core/Tensor.h>

namespace torchtap::python {

/// Stands in for a parameter of a Python model, which has Python's hook alone: LibTorch drops a tensor's
/// Python hooks where C++ puts one of its own, and the other way round. A recorder attaches to an empty
/// tensor, and Python's hook hands gradients to what is there.
class Leaf {
 public:
  explicit Leaf(const at::Tensor& parameter);
  /// What C++ attaches to.
  const at::Tensor& tensor() const noexcept { return leaf_; }
  /// Runs the hooks with a gradient of the parameter.
  void hand_over(const at::Tensor& gradient) const;
  /// Is frozen if the parameter is, for notes.
  void follow() const;
  /// Whether no hook is attached any more.
  bool idle() const;

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> parameter_;
  at::Tensor leaf_;
};

}  // namespace torchtap::python
