#pragma once

// Shared by the files that define torchtap in Python.

#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::python {

namespace py = pybind11;

/// Runs `function` without Python's lock: threads that hold a lock of torchtap may wait for it.
template <class Function>
auto unlocked(Function&& function) {
  const py::gil_scoped_release released;
  return function();
}

/// What C++ says, with Python's words for what it advises.
std::string in_python(std::string text);
/// The Python exception with the same text: of a c10::ValueError a ValueError, and so on.
py::object to_exception(const std::exception_ptr& error);

/// A tensor, a str, None, or a list or dict of such.
py::object to_python(const core::Value& value);
/// The value for an object of these types. Throws `c10::TypeError` for others.
core::Value to_value(py::handle object);
/// The results by name.
py::dict to_python(const core::Results& results);

/// An object that was given to the function `call`. Throws `c10::TypeError` for one of another type, with
/// what was `wanted`: "a torch.Tensor".
template <class T>
T argument(py::handle object, const std::string& call, const char* wanted) {
  try {
    return py::cast<T>(object);
  } catch (const py::cast_error&) {
    TORCH_CHECK_TYPE(false, "torchtap.", call, ": expected ", wanted, ", got ",
                     Py_TYPE(object.ptr())->tp_name, ".");
  }
}
at::Tensor tensor_argument(py::handle object, const std::string& call);

/// What an option of this type is to be, in an error's words.
template <class T>
constexpr const char* kWanted = "";
template <>
inline constexpr const char* kWanted<std::int64_t> = "; expected a whole number";
template <>
inline constexpr const char* kWanted<std::vector<std::int64_t>> = "; expected whole numbers";
template <>
inline constexpr const char* kWanted<at::ScalarType> = "; expected a torch.dtype, such as torch.float64";

/// An option of a class or function. Throws `c10::TypeError` for an object of another type.
template <class T>
T option(const py::dict& given, const char* name) {
  TORCH_CHECK_TYPE(given.contains(name), "torchtap: ", name,
                   " is missing; the classes of torchtap.reductions have all options.");
  try {
    return py::cast<T>(given[name]);
  } catch (const py::cast_error&) {
    TORCH_CHECK_TYPE(false, "torchtap: ", name, " cannot be ", py::cast<std::string>(py::repr(given[name])),
                     kWanted<T>, ".");
  }
}

/// The reduction of a recorder, of a `Reduction` or of a callable (accumulated, sample) -> accumulated.
std::unique_ptr<core::Sink> to_sink(const py::object& reduction);

void define_reductions(py::module_& module);
void define_selectors(py::module_& module);
void define_recorders(py::module_& module);
void define_direct_calls(py::module_& module);
void define_storage(py::module_& module);
/// Those that were built (views/).
void define_views(py::module_& module);

}  // namespace torchtap::python
