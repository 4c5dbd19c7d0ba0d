// Models of Python that are watched while they run.

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/views/monitor/monitor.hpp>

#include "callable.hpp"
#include "viewed_model.hpp"

namespace torchtap::python {
namespace {

namespace monitor = views::monitor;

monitor::MonitorOptions options_of(const py::dict& given) {
  monitor::MonitorOptions options;
  options.model(option<std::string>(given, "name")).incidents(option<std::string>(given, "save"));
  options.inputs(option<bool>(given, "inputs")).ring(option<std::int64_t>(given, "ring"));
  options.window(option<std::int64_t>(given, "window"));
  options.window_seconds(option<double>(given, "window_seconds")).cost(option<double>(given, "cost"));
  options.keep_incidents(option<std::int64_t>(given, "keep_incidents"));
  options.metrics_file(option<std::string>(given, "metrics_file"));
  options.tensorboard(option<std::string>(given, "tensorboard"));
  options.gradients(option<bool>(given, "gradients")).parameters(option<bool>(given, "parameters"));
  options.loss_scale(option<double>(given, "loss_scale")).learn(option<std::string>(given, "learn"));
  if (!given["select"].is_none()) options.select(option<selectors::Selector>(given, "select"));
  return options;
}

struct Monitored {
  ViewedModel model;
  std::optional<monitor::Monitor> watch;

  Monitored(py::handle given, const std::string& reference, const py::dict& options) : model(given) {
    const auto chosen = options_of(options);
    unlocked([&] {
      selectors::select(model.modules(), chosen.select());  // says which name finds nothing
      watch.emplace(model.modules(), reference, chosen);
    });
  }

  monitor::Monitor& open() {
    TORCH_CHECK(watch.has_value(), "torchtap.monitor: it was closed; make another one.");
    return *watch;
  }
};

void define(py::module_& module) {
  py::class_<monitor::Alarm>(module, "Alarm", "A rule that holds, or drift.")
      .def_property_readonly(
          "rule", [](const monitor::Alarm& one) { return one.finding.rule; },
          "The rule that holds, or \"drift\".")
      .def_property_readonly(
          "path", [](const monitor::Alarm& one) { return one.finding.path; }, "The module's path.")
      .def_readonly("raised", &monitor::Alarm::raised, "False when it is over.")
      .def_readonly("forward", &monitor::Alarm::forward,
                    "The number of the last forward that it is about, from 0.")
      .def_readonly("window", &monitor::Alarm::window,
                    "The number of the window, from 0; -1 if it is about one forward.")
      .def_readonly("time_ns", &monitor::Alarm::time_ns, "When, in nanoseconds since 1970.")
      .def_readonly("incident", &monitor::Alarm::incident,
                    "The folder with the inputs that led to it; empty if none was written.")
      .def(
          "json", [](const monitor::Alarm& one) { return monitor::to_json(one, ""); }, "All of it, as text.")
      .def("__str__", [](const monitor::Alarm& one) { return c10::str(one); });
  py::class_<Monitored>(module, "Monitored")
      .def(py::init<py::handle, const std::string&, const py::dict&>())
      .def("hooks", [](const Monitored& one) { return one.model.hooks(/*now=*/true); })
      .def_property_readonly("notes", [](const Monitored& one) { return one.model.notes(); })
      .def("on_alarm",
           [](Monitored& one, const py::object& callable) {
             auto tell = to_function<void, const monitor::Alarm&>(callable, "on_alarm");
             unlocked([&] { one.open().on_alarm(std::move(tell)); });
           })
      .def("alarms", [](Monitored& one) { return unlocked([&] { return one.open().alarms(); }); })
      .def("metrics", [](Monitored& one) { return unlocked([&] { return one.open().metrics(); }); })
      .def("capture",
           [](Monitored& one, const std::string& reason) {
             return unlocked([&] { return one.open().capture(reason); });
           })
      .def("flush", [](Monitored& one) { unlocked([&] { one.open().flush(); }); })
      .def("close", [](Monitored& one) {
        // Taken out first: whoever asks meanwhile hears that it was closed.
        auto ended = std::exchange(one.watch, std::nullopt);
        unlocked([&] { ended.reset(); });
      });
}

const DefinedView defined("monitor", &define);

}  // namespace
}  // namespace torchtap::python
