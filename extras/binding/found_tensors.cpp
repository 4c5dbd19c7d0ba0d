#include "found_tensors.hpp"

#include <torch/csrc/autograd/python_variable.h>

#include <string>
#include <string_view>
#include <utility>
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
  // What flags of a type tell comes first: whether something else is a tensor its metaclass is asked, in
  // Python.
  if (value == Py_None) {
    add(at::Tensor());
  } else if (PyTuple_Check(value) || PyList_Check(value)) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(value);
    for (Py_ssize_t i = 0; i < size; ++i) add(PySequence_Fast_GET_ITEM(value, i), depth);
  } else if (PyDict_Check(value)) {
    PyObject *key = nullptr, *item = nullptr;
    for (Py_ssize_t place = 0; PyDict_Next(value, &place, &key, &item) != 0;) add(item, depth);
  } else if (is_number_or_text(value)) {
    return;
  } else if (THPVariable_Check(value)) {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    add(tensor);
    if (tensor.key_set().has(c10::DispatchKey::Python) && is_of_a_trace(value)) computed_ = false;
  } else if (is_of_a_trace(value)) {
    computed_ = false;
  } else {
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

void FoundTensors::add_argument(py::handle argument) {
  const std::size_t begin = before_.size();
  add(argument.ptr());
  arguments_.push_back({argument, begin, before_.size(), {}});
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
  auto argument = arguments_.begin();
  for (std::size_t i = 0; i < now_.size(); ++i) {
    if (now_[i].defined()) {
      seen_.push_back(now_[i]);
    } else {
      seen_.push_absent();
    }
    for (; argument != arguments_.end() && argument->end <= i + 1; ++argument) {
      if (argument->begin == argument->end) continue;
      seen_.keep(static_cast<std::int64_t>(argument->begin),
                 [this, one = &*argument](hooks::extend::CallTensors::Of) {
                   const py::gil_scoped_acquire locked;
                   one->anew = made_anew(*one);
                 });
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

/// Throws `c10::NotImplementedError` if that cannot be.
py::object FoundTensors::made_anew(const Argument& argument) const {
  std::vector<bool> found(now_.size());
  const auto is_replaced = [&](std::size_t i) { return !now_[i].is_same(before_[i]); };
  const auto put = [&](const py::object& leaf) {
    if (!THPVariable_Check(leaf.ptr())) return leaf;
    const at::Tensor& tensor = THPVariable_Unpack(leaf.ptr());
    for (std::size_t i = argument.begin; i < argument.end; ++i) {
      if (!is_replaced(i) || found[i] || !before_[i].is_same(tensor)) continue;
      found[i] = true;
      return py::cast(now_[i]);
    }
    return leaf;
  };
  const auto refuse = [&](const std::string& why) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "It lies in a ", Py_TYPE(argument.value.ptr())->tp_name,
                                " that cannot be made anew with another tensor in it", why);
  };
  for (std::size_t i = argument.begin; i < argument.end; ++i) {
    TORCH_CHECK_NOT_IMPLEMENTED(!is_replaced(i) || before_[i].has_storage(),
                                "It belongs to a transform of torch.func, whose tensors have no memory of "
                                "their own that a view could share.");
  }
  py::object anew;
  try {
    anew = pytree().attr("tree_map")(py::cpp_function(put), argument.value);
  } catch (const py::error_already_set& error) {
    refuse(std::string(": ") + error.what());
  }
  for (std::size_t i = argument.begin; i < argument.end; ++i) {
    if (is_replaced(i) && !found[i])
      refuse("; register the classes in it with torch.utils._pytree.register_pytree_node.");
  }
  return anew;
}

py::tuple FoundTensors::with_replaced(const py::tuple& arguments, const py::dict& named) {
  auto argument = arguments_.begin();
  const auto next = [&](py::handle given) {
    auto& one = *argument++;
    return one.anew ? std::exchange(one.anew, {}) : py::reinterpret_borrow<py::object>(given);
  };
  py::tuple in_order(arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) in_order[i] = next(py::object(arguments[i]));
  py::dict by_name;
  for (const auto& [name, given] : named) by_name[name] = next(given);
  return py::make_tuple(in_order, by_name);
}

}  // namespace torchtap::python
