#pragma once

// Finds the tensors in the arguments and results of a Python module.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <vector>

#include <torchtap/hooks/extend/hook_point.hpp>

namespace torchtap::python {

namespace py = pybind11;

/// The tensors in Python values, flattened in order, as hooks see them: of tuples, lists, the values of
/// dicts, data classes, and containers that are registered with PyTorch's pytree, nested at will. None keeps
/// its slot. Other objects hold no tensors that can be seen.
class FoundTensors {
 public:
  FoundTensors() = default;
  FoundTensors(const FoundTensors&) = delete;
  FoundTensors& operator=(const FoundTensors&) = delete;

  /// Adds the tensors of a value. Call `see` when all values were added. What lies more than 64 containers
  /// deep, as in a list that holds itself, is left out.
  void add(PyObject* value, int depth = 0);
  /// Adds an argument, in which hooks may replace tensors: `argument` is made anew then. One that cannot be
  /// made anew keeps its tensors, and the hooks hear of it (`hooks::LeftOut`). Keep it until the call has
  /// begun.
  void add_argument(py::handle argument);
  /// Adds a tensor, undefined for None.
  void add(const at::Tensor& tensor);
  /// Whether these values were computed: none stands for others while PyTorch traces the model.
  bool computed() const noexcept { return computed_; }
  /// Whether all are tensors of PyTorch's own, whose operations are not defined in Python.
  bool plain() const noexcept { return plain_; }
  /// The tensors for hooks, which may replace them.
  hooks::extend::CallTensors& see();

  /// Whether a hook replaced a tensor.
  bool replaced() const;
  /// The arguments that were added, with the tensors that hooks put in place of others.
  py::tuple with_replaced(const py::tuple& arguments, const py::dict& named);

 private:
  struct Argument {
    py::handle value;
    std::size_t begin, end;  // its tensors
    py::object anew;         // null unless a tensor of it was replaced
  };

  py::object made_anew(const Argument& argument) const;

  std::vector<Argument> arguments_;
  c10::SmallVector<at::Tensor, 4> before_, now_;  // undefined for None
  hooks::extend::CallTensors seen_;
  bool computed_ = true;
  bool plain_ = true;
  bool any_ = false;  // a tensor, not only None
};

}  // namespace torchtap::python
