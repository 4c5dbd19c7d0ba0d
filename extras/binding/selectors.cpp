// Selectors in Python.

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <functional>
#include <regex>
#include <string>
#include <vector>

#include <torchtap/selectors/selectors.hpp>

#include "binding.hpp"
#include "stand_in.hpp"

namespace torchtap::python {
namespace {

using selectors::Selector;
using Predicate = std::function<bool(const std::string&, const py::object&)>;

/// Calls a predicate of Python with the path and the module.
Selector from_predicate(Predicate predicate, const std::string& description) {
  const auto selects = [predicate = std::move(predicate)](const model::ModuleRef& module) {
    return predicate(module.path(), py::reinterpret_borrow<py::object>(stand_in_of(module).module()));
  };
  return {selects, description};
}

}  // namespace

void define_selectors(py::module_& module) {
  py::class_<Selector>(module, "Selector", "Says which modules; combined with &, | and ~.")
      .def(py::init(&from_predicate), py::arg("predicate"), py::arg("description") = "predicate")
      .def(py::init([](const std::string& name) { return Selector(name); }), py::arg("name"))
      .def("allow_none", &Selector::allow_none, "The same, but selecting nothing is no error.")
      .def("__and__", [](const Selector& a, const Selector& b) { return a && b; })
      .def("__or__", [](const Selector& a, const Selector& b) { return a || b; })
      .def("__invert__", [](const Selector& a) { return !a; })
      .def("__repr__", [](const Selector& selector) { return selector.describe(); });
  py::implicitly_convertible<std::string, Selector>();
  module.def("everything", &selectors::everything, "Every module that has a forward.");
  module.def("leaves", &selectors::leaves, "Modules without submodules.");
  module.def("names",
             [](std::vector<std::string> patterns) { return selectors::names(std::move(patterns)); });
  module.def("regex", [](const std::string& expression) { return selectors::names(std::regex(expression)); });
  module.def("types", [](std::vector<std::string> names) { return selectors::types(std::move(names)); });
  module.def("indices", &selectors::indices);
  module.def("depth", [](std::int64_t least, std::int64_t most) { return selectors::depth(least, most); });
}

}  // namespace torchtap::python
