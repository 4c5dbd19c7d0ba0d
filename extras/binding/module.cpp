// The module torchtap._C: C++ objects for the Python package, and their exceptions in Python.

#include <torch/csrc/autograd/python_variable.h>
#include <torch/version.h>

#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/version.hpp>
#ifdef TORCHTAP_PYTHON_CUDA
#include <torchtap/cuda/fused_kernels.hpp>
#endif

#include "binding.hpp"

namespace torchtap::python {
namespace {

py::object exception(PyObject* type, const char* text) {
  return py::reinterpret_borrow<py::object>(type)(in_python(text));
}

/// `core::Context` in a `with`.
class Context {
 public:
  explicit Context(const py::kwargs& names) {
    for (const auto& [name, tensor] : names) {
      const auto named = py::cast<std::string>(name);
      names_.emplace_back(named, tensor_argument(tensor, "Context: " + named));
    }
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void enter() { open_.push_back(std::make_unique<core::Context>(names_)); }
  void exit() {
    TORCH_CHECK(!open_.empty(), "torchtap.Context: it is left, but was not entered; use it in a `with`.");
    open_.pop_back();
  }

 private:
  core::Context::Names names_;
  std::vector<std::unique_ptr<core::Context>> open_;
};

/// Makes every class refuse what its `__new__` made alone. pybind11 asks for memory when a function gets an
/// object that was not initialised, and would hand that over as it is.
void refuse_uninitialised(const py::module_& module) {
  for (const auto& [name, object] : py::dict(module.attr("__dict__"))) {
    if (!PyType_Check(object.ptr())) continue;
    auto* const info = py::detail::get_type_info(reinterpret_cast<PyTypeObject*>(object.ptr()));
    if (info == nullptr) continue;
    info->operator_new = [](std::size_t /*size*/) -> void* {
      throw py::type_error(
          "torchtap: this object was not initialised; make it by calling its class, and call "
          "super().__init__(...) first in the __init__ of a class of yours.");
    };
  }
}

}  // namespace

std::string in_python(std::string text) {
  static const auto& words = *new const std::vector<std::pair<std::regex, std::string>>{
      {std::regex(R"(\b\w+Options\(\)\.(mkdir|overwrite|append)\(true\))"), "$1=True"},
      {std::regex(R"re(core::Context named\("([^"]*)", tensor\))re"), "with torchtap.Context($1=tensor)"},
      {std::regex(R"(RecorderOptions\(\)\.transform\(torchtap::recorders::dequantized\))"),
       "transform=lambda x: x.dequantize()"},
      {std::regex(
           R"(RecorderOptions\(\)\.transform\(\[\]\(const at::Tensor& x\) \{ return at::real\(x\); \}\))"),
       "transform=lambda x: x.real"},
      {std::regex(R"(\b(?:recorders::)?RecorderOptions::(\w+))"), "$1"},
      {std::regex(R"(\bcore::Context\b)"), "torchtap.Context"},
      {std::regex(R"(\bcore::Results::at\b)"), "torchtap"},
      {std::regex(R"(; call tensors\(\)\.)"), "; read `value`."},
      {std::regex(R"(\ball_tensors\(\) records)"), "all_tensors=True records"},
      {std::regex(R"(\bAnySeries\b)"), "Series"},
      {std::regex(R"(\btorchtap::\w+::(\w+))"), "torchtap.$1"},
      {std::regex(R"(\bload_value: )"), "load: "},
      {std::regex(R"(\b((?:recorders|storage)::\w+)::at: )"), "$1: "},
      {std::regex(R"(\bat::(\w+))"), "torch.$1"},
      {std::regex(R"( Link the program with torchtap::transparent to see more\.)"), ""},
      {std::regex(R"(\bviews::(\w+)(?:::\w+)*: )"), "torchtap.$1: "},
      {std::regex(R"(ReportOptions\(\)\.non_finite\(OnNonFinite::note\))"), "non_finite=\"note\""},
      {std::regex(R"(TraceOptions\(\)\.save\(Save::all\))"), "save=\"all\""},
      {std::regex(R"(\bTraceOptions::(\w+))"), "$1"},
      {std::regex(R"(\bOverBudget::drop\b)"), "drop=True"},
      {std::regex(R"(\bLibTorch's own; scratch)"), "PyTorch's own; scratch"},
      {std::regex(R"(\b(?:recorders|reductions|storage)::(\w+)::(\w+))"), "torchtap.$1.$2"},
      {std::regex(R"(\b(?:recorders|reductions|storage)::(\w+))"), "torchtap.$1"},
  };
  for (const auto& [cpp, python] : words) text = std::regex_replace(text, cpp, python);
  return text;
}

py::object to_exception(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const py::error_already_set& thrown) {
    return thrown.value();
  } catch (const c10::IndexError& thrown) {
    return exception(PyExc_IndexError, thrown.what_without_backtrace());
  } catch (const c10::ValueError& thrown) {
    return exception(PyExc_ValueError, thrown.what_without_backtrace());
  } catch (const c10::TypeError& thrown) {
    return exception(PyExc_TypeError, thrown.what_without_backtrace());
  } catch (const c10::NotImplementedError& thrown) {
    return exception(PyExc_NotImplementedError, thrown.what_without_backtrace());
  } catch (const c10::Error& thrown) {
    return exception(PyExc_RuntimeError, thrown.what_without_backtrace());
  } catch (const std::exception& thrown) {
    return exception(PyExc_RuntimeError, thrown.what());
  }
}

at::Tensor tensor_argument(py::handle object, const std::string& call) {
  TORCH_CHECK_TYPE(THPVariable_Check(object.ptr()), "torchtap.", call, ": expected a torch.Tensor, got ",
                   Py_TYPE(object.ptr())->tp_name, "; torch.as_tensor makes one of numbers and arrays.");
  return py::cast<at::Tensor>(object);
}

py::object to_python(const core::Value& value) {
  if (value.is_tensor()) return value.tensor().defined() ? py::cast(value.tensor()) : py::none();
  if (value.is_text()) return py::cast(value.text());
  if (value.is_list()) {
    py::list list;
    for (const auto& item : value.list()) list.append(to_python(item));
    return list;
  }
  if (value.is_dict()) {
    py::dict dict;
    for (const auto& [key, item] : value.dict()) dict[py::str(key)] = to_python(item);
    return dict;
  }
  return py::none();
}

py::dict to_python(const core::Results& results) {
  py::dict dict;
  for (const auto& [name, tensor] : results) dict[py::str(name)] = py::cast(tensor);
  return dict;
}

core::Value to_value(py::handle object) {
  if (object.is_none()) return {};
  if (THPVariable_Check(object.ptr())) return py::cast<at::Tensor>(object);
  if (py::isinstance<py::str>(object)) return core::Value(py::cast<std::string>(object));
  if (py::isinstance<py::dict>(object)) {
    core::Value::Dict dict;
    for (const auto& [key, item] : py::reinterpret_borrow<py::dict>(object)) {
      dict.emplace_back(py::cast<std::string>(py::str(key)), to_value(item));
    }
    return dict;
  }
  TORCH_CHECK_TYPE(py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object),
                   "torchtap: expected a tensor, a str, None, or a list or dict of such, got ",
                   Py_TYPE(object.ptr())->tp_name, ".");
  core::Value::List list;
  for (const auto& item : object) list.push_back(to_value(item));
  return list;
}

PYBIND11_MODULE(_C, module) {
  py::options options;
  options.disable_function_signatures();  // they are in _C.pyi
  module.attr("version") = TORCHTAP_VERSION;
  module.attr("torch_version") = TORCH_VERSION;
  py::register_local_exception_translator([](std::exception_ptr error) {
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error&) {
      const py::object value = to_exception(error);
      PyErr_SetObject(py::type::handle_of(value).ptr(), value.ptr());
    }
  });
  py::class_<Context>(module, "Context")
      .def(py::init<const py::kwargs&>())
      .def(
          "__enter__",
          [](Context& context) -> Context& {
            context.enter();
            return context;
          },
          py::return_value_policy::reference)
      .def("__exit__", [](Context& context, const py::args&) { context.exit(); });
  define_reductions(module);
  define_selectors(module);
  define_recorders(module);
  define_direct_calls(module);
  define_storage(module);
  module.def("in_python", &in_python);
  define_views(module);
  refuse_uninitialised(module);
#ifdef TORCHTAP_PYTHON_CUDA
  module.def("enable_fused_kernels", &cuda::enable_fused_kernels);
  module.def("disable_fused_kernels", &cuda::disable_fused_kernels);
  module.def("fused_kernels_enabled", &cuda::fused_kernels_enabled);
#endif
}

}  // namespace torchtap::python
