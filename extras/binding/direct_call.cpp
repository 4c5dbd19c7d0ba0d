// Calls hooks without the Python code that PyTorch's compiler sees in their place.

#include <torch/csrc/Exceptions.h>

#include "binding.hpp"
#include "stand_in.hpp"

namespace torchtap::python {
namespace {

/// The hook of an object of torchtap._hooks. Its attribute, so that the compiler sees plain objects of
/// Python.
const Hook& hook_of(PyObject* self) {
  static PyObject* const name = PyUnicode_InternFromString("hook");
  static PyTypeObject* const type = reinterpret_cast<PyTypeObject*>(py::type::of<Hook>().ptr());
  const auto object = py::reinterpret_steal<py::object>(PyObject_GetAttr(self, name));  // which `self` holds
  if (!object) throw py::error_already_set();
  if (Py_TYPE(object.ptr()) != type) return py::cast<const Hook&>(object);
  auto* instance = reinterpret_cast<py::detail::instance*>(object.ptr());  // without a search for its type
  if (const Hook* const hook = instance->get_value_and_holder().value_ptr<Hook>()) return *hook;
  return py::cast<const Hook&>(object);  // which says that it was not initialised
}

py::handle argument(PyObject* arguments, Py_ssize_t place) {
  return PyTuple_GET_ITEM(arguments, place);
}
template <class T>
T argument_as(PyObject* arguments, Py_ssize_t place) {
  return py::reinterpret_borrow<T>(argument(arguments, place));
}

py::object before(const Hook& hook, PyObject* given) {
  return hook.before(argument(given, 0), argument_as<py::tuple>(given, 1), argument_as<py::dict>(given, 2));
}
py::object after(const Hook& hook, PyObject* given) {
  return hook.after(argument(given, 0), argument_as<py::object>(given, 2));
}
py::object after_with_inputs(const Hook& hook, PyObject* given) {
  return hook.after(argument(given, 0), argument_as<py::tuple>(given, 1), argument_as<py::dict>(given, 2),
                    argument_as<py::object>(given, 3));
}

/// A `tp_call` for PyTorch's calls of its hooks, which have `count` positional arguments.
template <py::object (*run)(const Hook&, PyObject*), Py_ssize_t count>
PyObject* call(PyObject* self, PyObject* arguments, PyObject* /*named*/) {
  try {
    TORCH_CHECK_TYPE(PyTuple_GET_SIZE(arguments) == count, "torchtap: PyTorch calls this hook with ", count,
                     " arguments, and it got ", PyTuple_GET_SIZE(arguments), ".");
    return run(hook_of(self), arguments).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (python_error& error) {  // PyTorch's own
    error.restore();
  } catch (...) {
    const py::object value = to_exception(std::current_exception());
    PyErr_SetObject(py::type::handle_of(value).ptr(), value.ptr());
  }
  return nullptr;
}

void set_call(const py::type& type, ternaryfunc function) {
  auto* const changed = reinterpret_cast<PyTypeObject*>(type.ptr());
  changed->tp_call = function;
  PyType_Modified(changed);
}

}  // namespace

void define_direct_calls(py::module_& module) {
  module.def("call_directly",
             [](const py::type& for_before, const py::type& for_after, const py::type& for_inputs) {
               set_call(for_before, &call<before, 3>);
               set_call(for_after, &call<after, 3>);
               set_call(for_inputs, &call<after_with_inputs, 4>);
             });
}

}  // namespace torchtap::python
