// Reports of models of Python.

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <functional>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <torchtap/views/report/report.hpp>

#include "callable.hpp"
#include "viewed_model.hpp"

namespace torchtap::python {
namespace {

namespace report = views::report;

/// A formula of the user's for the work of an operation: (arguments, results) -> multiply-accumulates.
report::Formula to_formula(const std::string& operation, const py::object& callable) {
  const std::string what = "the formula of " + operation;
  check_callable(callable, what);
  return
      [what, held = held(callable)](const operations::Values& arguments, const operations::Values& results) {
        const UsersCode users;
        const auto list = [](const operations::Values& values) {
          py::list all;
          for (const c10::IValue& value : values) all.append(torch::jit::toPyObject(value));
          return all;
        };
        const py::object macs = (*held)(list(arguments), list(results));
        if (PyLong_Check(macs.ptr()) == 0) refuse_returned(what, macs, "a whole number");
        return py::cast<std::int64_t>(macs);
      };
}

report::ReportOptions options_of(const py::dict& given) {
  report::ReportOptions options;
  options.memory(option<bool>(given, "memory")).work(option<bool>(given, "work"));
  options.synchronize(option<bool>(given, "synchronize")).warmup(option<std::int64_t>(given, "warmup"));
  const auto non_finite = option<std::string>(given, "non_finite");
  TORCH_CHECK_VALUE(non_finite == "note" || non_finite == "ignore" || non_finite == "raise",
                    "torchtap.report: non_finite is \"", non_finite,
                    "\"; it has to be \"note\", \"ignore\" or \"raise\".");
  options.non_finite(non_finite == "note"     ? report::OnNonFinite::note
                     : non_finite == "ignore" ? report::OnNonFinite::ignore
                                              : report::OnNonFinite::raise);
  // A clock that stands still: nothing is said of times then.
  if (!option<bool>(given, "times")) options.clock([] { return std::int64_t{0}; });
  const auto cost = option<std::vector<std::int64_t>>(given, "call_cost");
  if (cost.size() == 2) options.call_cost(report::CallCost{cost[0], cost[1]});
  for (const auto& [name, formula] : option<py::dict>(given, "formulas")) {
    const auto operation = py::cast<std::string>(name);
    options.formula(operation, to_formula(operation, py::reinterpret_borrow<py::object>(formula)));
  }
  return options;
}

/// A report, and the model that it is of.
struct Reported {
  ViewedModel model;
  std::mutex mutex;  // taken without Python's lock
  report::Report measured;

  Reported(py::handle given, const py::dict& options)
      : model(given), measured(model.modules(), options_of(options)) {}

  std::unique_ptr<report::Repeat, DestroyedUnlocked<report::Repeat>> record() {
    return unlocked([&] {
      const std::lock_guard lock(mutex);
      return std::unique_ptr<report::Repeat, DestroyedUnlocked<report::Repeat>>(
          new report::Repeat(measured.record()));
    });
  }

  report::Measurements results() {
    report::Measurements results = unlocked([&] {
      const std::lock_guard lock(mutex);
      return measured.results();
    });
    for (std::string& note : results.notes) note = in_python(note);
    results.notes.insert(results.notes.begin(), model.notes().begin(), model.notes().end());
    name(results.root);
    return results;
  }

 private:
  void name(report::ModuleRow& row) const {
    if (std::string type = model.type_now(row.path); !type.empty()) row.type = std::move(type);
    for (report::ModuleRow& child : row.children) name(child);
  }
};

std::string text(const report::Measurements& results, const py::kwargs& given) {
  report::PrintOptions options;
  options.width(static_cast<std::size_t>(option<std::int64_t>(given, "width")));
  options.columns(option<std::vector<std::string>>(given, "columns"));
  options.max_rows(option<std::int64_t>(given, "max_rows")).ascii(option<bool>(given, "ascii"));
  if (!given["depth"].is_none()) options.depth(option<std::int64_t>(given, "depth"));
  std::ostringstream out;
  report::print(out, results, options);
  return out.str();
}

report::Phase phase_of(const std::string& name) {
  if (name == "forward") return report::Phase::forward;
  if (name == "backward") return report::Phase::backward;
  TORCH_CHECK_VALUE(name == "other", "torchtap.report: there is no phase \"", name,
                    "\"; there are \"forward\", \"backward\" and \"other\".");
  return report::Phase::other;
}

void define(py::module_& module) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<report::Repeat, std::unique_ptr<report::Repeat, DestroyedUnlocked<report::Repeat>>>(
      module, "Repeat", "A step that is being measured.")
      .def(
          "phase",
          [](report::Repeat& one, const std::string& name) {
            const report::Phase phase = phase_of(name);
            unlocked([&] { one.phase(phase); });
          },
          "What comes counts for this phase: \"forward\", \"backward\" or \"other\".")
      .def("next", &report::Repeat::next, release, "Ends this step, and begins the next.")
      .def("stop", &report::Repeat::stop, release, "Ends this step, and takes the hooks away.");
  py::class_<report::Measurements>(module, "Measurements")
      .def("json", &report::json, release)
      .def("csv", &report::csv, release)
      .def("html", &report::html, release)
      .def("add_note", [](report::Measurements& one,
                          const std::string& note) { one.notes.insert(one.notes.begin(), note); })
      .def("text", &text);
  module.def("measurements_from_json", &report::from_json, release);
  py::class_<Reported>(module, "Reported")
      .def(py::init<py::handle, const py::dict&>())
      .def("hooks", [](const Reported& one) { return one.model.hooks(); })
      .def("record", &Reported::record)
      .def("results", &Reported::results);
}

const DefinedView defined("report", &define);

}  // namespace
}  // namespace torchtap::python
