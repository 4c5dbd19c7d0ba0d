#include "found_tensors.hpp"

#include <torch/csrc/autograd/python_variable.h>

#include <string_view>
#include <vector>

#include <torchtap/base/error.hpp>

namespace torchtap::python {
namespace {

/// PyTorch's own functions that take containers apart.
py::module_ pytree() {
  return py::module_::import("torch.utils._pytree");
}

/// The containers that are registered with pytree, by type. Never destroyed, because Python ends first.
const py::dict& registered_nodes() {
  static const auto* nodes = new py::dict(pytree().attr("SUPPORTED_NODES"));
  return *nodes;
}

bool is_number_or_text(PyObject* value) noexcept {
  return PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value) || PyBytes_Check(value);
}

/// Whether PyTorch traces with a value of this class (torch.export, torch.fx), so that nothing is computed.
bool is_of_a_trace(PyObject* value) {
  const std::string_view name = Py_TYPE(value)->tp_name;
  if (name != "FakeTensor" && name != "FunctionalTensor" && name != "Proxy") return false;
  const py::object module =
      py::type::handle_of(py::handle(value)).attr("__module__");  // others have a class Proxy, too
  return py::isinstance<py::str>(module) && py::cast<std::string>(module).rfind("torch.", 0) == 0;
}

}  // namespace

void FoundTensors::add(PyObject* value, int depth) {
  if (depth++ > 64) return;
  if (THPVariable_Check(value)) {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    add(tensor);
    if (tensor.key_set().has(c10::DispatchKey::Python) && is_of_a_trace(value)) computed_ = false;
  } else if (value == Py_None) {
    add(at::Tensor());
  } else if (PyTuple_Check(value) || PyList_Check(value)) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(value);
    for (Py_ssize_t i = 0; i < size; ++i) add(PySequence_Fast_GET_ITEM(value, i), depth);
  } else if (PyDict_Check(value)) {
    PyObject *key = nullptr, *item = nullptr;
    for (Py_ssize_t place = 0; PyDict_Next(value, &place, &key, &item) != 0;) add(item, depth);
  } else if (is_of_a_trace(value)) {
    computed_ = false;
  } else if (!is_number_or_text(value)) {
    const py::handle object(value);
    const py::handle type(reinterpret_cast<PyObject*>(Py_TYPE(value)));
    if (registered_nodes().contains(type)) {
      const py::tuple parts = registered_nodes()[type].attr("flatten_fn")(object);
      add(py::list(parts[0]).ptr(), depth);
    } else if (py::hasattr(type, "__dataclass_fields__")) {
      for (const auto field : type.attr("__dataclass_fields__")) {
        if (py::hasattr(object, field)) add(py::object(object.attr(field)).ptr(), depth);
      }
    }
  }
}

void FoundTensors::add(const at::Tensor& tensor) {
  before_.push_back(tensor);
  if (!tensor.defined()) return;
  any_ = true;
  if (tensor.key_set().has(c10::DispatchKey::Python)) plain_ = false;
}

hooks::extend::CallTensors& FoundTensors::see() {
  if (!any_) return seen_;  // None alone is no tensor
  now_ = before_;
  for (at::Tensor& tensor : now_) {
    if (tensor.defined()) {
      seen_.push_back(tensor);
    } else {
      seen_.push_absent();
    }
  }
  return seen_;
}

bool FoundTensors::replaced() const {
  for (std::size_t i = 0; i < now_.size(); ++i) {
    if (!now_[i].is_same(before_[i])) return true;
  }
  return false;
}

py::object FoundTensors::with_replaced(const py::object& value) const {
  std::vector<bool> found(now_.size());
  const auto put = [&](const py::object& leaf) {
    if (!THPVariable_Check(leaf.ptr())) return leaf;
    const at::Tensor& tensor = THPVariable_Unpack(leaf.ptr());
    for (std::size_t i = 0; i < now_.size(); ++i) {
      if (now_[i].is_same(before_[i]) || found[i] || !before_[i].is_same(tensor)) continue;
      found[i] = true;
      return py::cast(now_[i]);
    }
    return leaf;
  };
  py::object result = pytree().attr("tree_map")(py::cpp_function(put), value);
  for (std::size_t i = 0; i < now_.size(); ++i) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        found[i] || now_[i].is_same(before_[i]), "torchtap: tensor ", i,
        " lies in a container that cannot be made anew with another tensor in it, as BackwardInput does; "
        "register its class with torch.utils._pytree.register_pytree_node.");
  }
  return result;
}

}  // namespace torchtap::python
