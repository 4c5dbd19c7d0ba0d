// Traces of models of Python.

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <torchtap/views/trace/trace.hpp>

#include "callable.hpp"
#include "viewed_model.hpp"

namespace torchtap::python {
namespace {

namespace trace = views::trace;
using trace::History;
using trace::Node;

/// What a predicate is asked about. `trace::Candidate` lives only during the call.
struct Candidate {
  std::string function, type, module;
  std::int64_t index;
  at::Tensor tensor;
};

void set_saved(trace::TraceOptions& options, const py::object& save) {
  if (save.is_none()) return;
  if (py::isinstance<py::str>(save)) {
    const auto what = py::cast<std::string>(save);
    TORCH_CHECK_VALUE(what == "all" || what == "none", "torchtap.trace: save is \"", what,
                      "\"; it has to be \"all\", \"none\", a list of names, or a callable that is asked of "
                      "each tensor.");
    options.save(what == "all" ? trace::Save::all : trace::Save::none);
  } else if (PyCallable_Check(save.ptr()) != 0) {
    auto asked = to_function<bool, const Candidate&>(save, "save");
    options.save([asked = std::move(asked)](const trace::Candidate& one) {
      return asked({one.function, one.type, one.module, one.index, one.tensor});
    });
  } else {
    options.save(argument<std::vector<std::string>>(
        save, "trace", "save to be \"all\", \"none\", a list of names, or a callable"));
  }
}

trace::TraceOptions options_of(const py::dict& given) {
  trace::TraceOptions options;
  const auto is_given = [&](const char* name) { return !given[name].is_none(); };
  set_saved(options, given["save"]);
  const auto level = option<std::string>(given, "level");
  TORCH_CHECK_VALUE(level == "program" || level == "leaf", "torchtap.trace: level is \"", level,
                    "\"; it has to be \"program\" or \"leaf\".");
  options.level(level == "leaf" ? operations::Level::leaf : operations::Level::program);
  options.gradients(option<bool>(given, "gradients"));
  if (is_given("device")) options.device(option<at::Device>(given, "device"));
  if (is_given("dtype")) options.dtype(option<at::ScalarType>(given, "dtype"));
  if (is_given("transform"))
    options.transform(to_function<at::Tensor, const at::Tensor&>(given["transform"], "the transform"));
  if (is_given("memory_budget"))
    options.memory_budget(option<std::int64_t>(given, "memory_budget"),
                          option<bool>(given, "drop") ? trace::OverBudget::drop : trace::OverBudget::raise);
  return options;
}

/// A pass that is being logged, and the model that it is of.
struct Tracing {
  ViewedModel model;
  trace::Tracer tracer;

  Tracing(py::handle given, const py::dict& options)
      : model(given), tracer(model.modules(), options_of(options)) {}
};

trace::DrawOptions draw_options_of(const py::dict& given) {
  trace::DrawOptions options;
  options.rolled(option<bool>(given, "rolled")).parameters(option<bool>(given, "parameters"));
  options.max_nodes(option<std::int64_t>(given, "max_nodes"));
  options.time_limit(option<double>(given, "time_limit"));
  if (!given["depth"].is_none()) options.depth(option<std::int64_t>(given, "depth"));
  const auto direction = option<std::string>(given, "direction");
  TORCH_CHECK_VALUE(direction == "bottom_up" || direction == "top_down" || direction == "left_right",
                    "torchtap.trace: direction is \"", direction,
                    "\"; it has to be \"bottom_up\", \"top_down\" or \"left_right\".");
  options.direction(direction == "top_down"     ? trace::Direction::top_down
                    : direction == "left_right" ? trace::Direction::left_right
                                                : trace::Direction::bottom_up);
  if (!given["style"].is_none()) {
    const py::object style = given["style"];
    check_callable(style, "style");
    options.style([held = held(style)](const Node& node, trace::DrawOptions::Attributes& attributes) {
      const UsersCode users;
      const py::object changed = (*held)(node, attributes);
      if (!changed.is_none()) attributes = py::cast<trace::DrawOptions::Attributes>(changed);
    });
  }
  return options;
}

template <class T>
std::string printed(const T& one) {
  std::ostringstream out;
  unlocked([&] { out << one; });
  return in_python(out.str());
}

Node node_of(const History& history, const py::object& which) {
  if (py::isinstance<py::str>(which)) return history[py::cast<std::string>(which)];
  return history[argument<std::int64_t>(which, "History", "a label, the path of a module, or a place")];
}

constexpr const char* kind_name(trace::NodeKind kind) {
  switch (kind) {
    case trace::NodeKind::input:
      return "input";
    case trace::NodeKind::operation:
      return "operation";
    case trace::NodeKind::outside:
      return "outside";
    case trace::NodeKind::output:
      break;
  }
  return "output";
}

constexpr const char* kind_name(trace::Fault::Kind kind) {
  using Kind = trace::Fault::Kind;
  switch (kind) {
    case Kind::differs:
      return "differs";
    case Kind::threw:
      return "threw";
    case Kind::changed:
      return "changed";
    case Kind::lacks_parent:
      return "lacks_parent";
    case Kind::false_parent:
      return "false_parent";
    case Kind::ignores_parent:
      return "ignores_parent";
    case Kind::not_repeated:
      break;
  }
  return "not_repeated";
}

void define_facts(py::module_& module) {
  py::class_<Candidate>(module, "Candidate", "A tensor that `save` is asked about.")
      .def_readonly("function", &Candidate::function)
      .def_readonly("type", &Candidate::type)
      .def_readonly("module", &Candidate::module)
      .def_readonly("index", &Candidate::index)
      .def_readonly("tensor", &Candidate::tensor);
  py::class_<trace::ModuleCall>(module, "ModuleCall", "One call of a module.")
      .def_readonly("path", &trace::ModuleCall::path)
      .def_readonly("type", &trace::ModuleCall::type)
      .def_readonly("call", &trace::ModuleCall::call)
      .def("__repr__", [](const trace::ModuleCall& one) { return c10::str(one.path, ":", one.call + 1); });
  py::class_<trace::ModuleSummary>(module, "ModuleSummary", "A module that ran in a pass.")
      .def_readonly("path", &trace::ModuleSummary::path)
      .def_readonly("type", &trace::ModuleSummary::type)
      .def_readonly("calls", &trace::ModuleSummary::calls)
      .def_readonly("nodes", &trace::ModuleSummary::nodes)
      .def_readonly("parameters", &trace::ModuleSummary::parameters)
      .def_readonly("parameter_bytes", &trace::ModuleSummary::parameter_bytes);
  py::class_<trace::ParameterUse>(module, "ParameterUse", "A parameter or buffer that an operation read.")
      .def_readonly("path", &trace::ParameterUse::path)
      .def_property_readonly("shape",
                             [](const trace::ParameterUse& one) { return py::tuple(py::cast(one.shape)); })
      .def_readonly("dtype", &trace::ParameterUse::dtype)
      .def_readonly("elements", &trace::ParameterUse::elements)
      .def_readonly("bytes", &trace::ParameterUse::bytes)
      .def_readonly("buffer", &trace::ParameterUse::buffer)
      .def_readonly("trainable", &trace::ParameterUse::trainable)
      .def("__repr__", [](const trace::ParameterUse& one) { return one.path; });
  py::class_<trace::Argument>(module, "Argument", "One argument of an operation.")
      .def_readonly("name", &trace::Argument::name)
      .def_readonly("text", &trace::Argument::text)
      .def_readonly("nodes", &trace::Argument::nodes)
      .def("__repr__", [](const trace::Argument& one) { return one.name + "=" + one.text; });
  py::class_<trace::Fault>(module, "Fault", "What validation found wrong with an operation.")
      .def_property_readonly("kind", [](const trace::Fault& one) { return kind_name(one.kind); })
      .def_readonly("label", &trace::Fault::label)
      .def_readonly("function", &trace::Fault::function)
      .def_readonly("message", &trace::Fault::message)
      .def("__repr__", [](const trace::Fault& one) { return one.label + ": " + one.message; });
  py::class_<trace::Validation>(module, "Validation", "True if nothing is wrong.")
      .def("__bool__", [](const trace::Validation& one) { return static_cast<bool>(one); })
      .def("__str__", &printed<trace::Validation>)
      .def_readonly("findings", &trace::Validation::findings)
      .def_readonly("unconfirmed", &trace::Validation::unconfirmed)
      .def_readonly("confirmed", &trace::Validation::confirmed)
      .def_readonly("random", &trace::Validation::random)
      .def_readonly("undetermined", &trace::Validation::undetermined)
      .def_readonly("perturbed", &trace::Validation::perturbed)
      .def_readonly("followed", &trace::Validation::followed);
}

void define_node(py::module_& module) {
  const auto text = [](const std::string& (Node::*get)() const&) {
    return [get](const Node& one) { return (one.*get)(); };
  };
  py::class_<Node>(module, "Node", "One tensor that a forward computed, and where it came from.")
      .def_property_readonly("kind", [](const Node& one) { return kind_name(one.kind()); })
      .def_property_readonly("position", &Node::position)
      .def_property_readonly("label", text(&Node::label))
      .def_property_readonly("layer_label", &Node::layer_label)
      .def_property_readonly("short_label", &Node::short_label)
      .def_property_readonly("type", text(&Node::type))
      .def_property_readonly("name", text(&Node::name))
      .def_property_readonly("function", text(&Node::function))
      .def_property_readonly("layer", &Node::layer)
      .def_property_readonly("pass_number", &Node::pass)
      .def_property_readonly("passes", &Node::passes)
      .def_property_readonly("shape", [](const Node& one) { return py::tuple(py::cast(one.shape())); })
      .def_property_readonly("dtype", &Node::dtype)
      .def_property_readonly("device", &Node::device)
      .def_property_readonly("bytes", &Node::bytes)
      .def_property_readonly("requires_grad", &Node::requires_grad)
      .def_property_readonly("saved", &Node::saved)
      .def_property_readonly("tensor", [](const Node& one) { return unlocked([&] { return one.tensor(); }); })
      .def_property_readonly("gradient",
                             [](const Node& one) -> std::optional<at::Tensor> {
                               if (!one.has_gradient()) return std::nullopt;
                               return unlocked([&] { return one.gradient(); });
                             })
      .def_property_readonly("parents", &Node::parents)
      .def_property_readonly("children", &Node::children)
      .def_property_readonly("siblings", &Node::siblings)
      .def_property_readonly("spouses", &Node::spouses)
      .def_property_readonly("ancestors", &Node::ancestors)
      .def_property_readonly("descendants", &Node::descendants)
      .def_property_readonly("input_ancestors", &Node::input_ancestors)
      .def_property_readonly("output_descendants", &Node::output_descendants)
      .def_property_readonly("distance_from_input", &Node::distance_from_input)
      .def_property_readonly("distance_to_output", &Node::distance_to_output)
      .def_property_readonly("arguments", [](const Node& one) { return one.arguments(); })
      .def_property_readonly("parameters", [](const Node& one) { return one.parameters(); })
      .def_property_readonly("modules", [](const Node& one) { return one.modules(); })
      .def_property_readonly("output_of", [](const Node& one) { return one.output_of(); })
      .def_property_readonly("in_place", &Node::in_place)
      .def_property_readonly("view", &Node::view)
      .def_property_readonly("random", &Node::random)
      .def_property_readonly("created_inside", &Node::created_inside)
      .def_property_readonly("read_by_program", &Node::read_by_program)
      .def_property_readonly("result", &Node::result)
      .def_property_readonly("results", &Node::results)
      .def_property_readonly("seconds", &Node::seconds)
      .def_property_readonly("keys", &Node::keys)
      .def("__eq__", [](const Node& a,
                        const py::object& b) { return py::isinstance<Node>(b) && a == py::cast<Node>(b); })
      .def("__hash__", &Node::position)
      .def("__str__", &printed<Node>)
      .def("__repr__", [](const Node& one) { return "torchtap.Node(" + one.label() + ")"; });
}

void define_history(py::module_& module) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<History>(module, "History", py::dynamic_attr(),
                      "The log of one forward: every tensor that it computed.")
      .def("__len__", &History::size)
      .def(
          "__iter__", [](const History& one) { return py::make_iterator(one.begin(), one.end()); },
          py::keep_alive<0, 1>())
      .def("__getitem__", &node_of)
      .def("__contains__", [](const History& one, const std::string& name) { return one.contains(name); })
      .def("find", &History::find)
      .def("parents",
           [](const History& one, const py::object& which) { return node_of(one, which).parents(); })
      .def("children",
           [](const History& one, const py::object& which) { return node_of(one, which).children(); })
      .def_property_readonly("inputs", &History::inputs)
      .def_property_readonly("outputs", &History::outputs)
      .def_property_readonly("labels", &History::labels)
      .def_property_readonly("operations", &History::operations)
      .def_property_readonly("layers", &History::layers)
      .def("passes", &History::passes)
      .def_property_readonly("bytes", &History::bytes)
      .def_property_readonly("saved", &History::saved)
      .def_property_readonly("saved_bytes", &History::saved_bytes)
      .def_property_readonly("dropped", &History::dropped)
      .def_property_readonly("copied", &History::copied)
      .def_property_readonly("model", [](const History& one) { return one.model(); })
      .def_property_readonly("modules", [](const History& one) { return one.modules(); })
      .def_property_readonly("unreached_modules", [](const History& one) { return one.unreached_modules(); })
      .def_property_readonly("parameters", [](const History& one) { return one.parameters(); })
      .def_property_readonly("seconds", &History::seconds)
      .def_property_readonly("operation_seconds", &History::operation_seconds)
      .def_property_readonly("error", [](const History& one) { return one.error(); })
      .def("validate", &History::validate, release)
      .def("csv", &History::csv, release)
      .def("json", &History::json, release)
      .def(
          "save_to",
          [](const History& one, const std::string& folder, bool mkdir, bool overwrite) {
            one.save(folder, storage::SaveOptions().mkdir(mkdir).overwrite(overwrite));
          },
          release)
      .def("dot_of",
           [](const History& one, const py::dict& options) {
             const auto chosen = draw_options_of(options);
             return unlocked([&] { return one.dot(chosen); });
           })
      .def("draw_to",
           [](const History& one, const std::string& file, const py::dict& options) {
             const auto chosen = draw_options_of(options);
             unlocked([&] { one.draw(file, chosen); });
           })
      .def("text", &printed<History>)
      .def("__repr__", [](const History& one) {
        return c10::str("torchtap.History(", one.model(), ", ", one.operations(), " operations, ",
                        one.saved(), " tensors kept)");
      });
  module.def(
      "load_history", [](const std::string& folder) { return History::load(folder); }, release);
}

void define(py::module_& module) {
  define_facts(module);
  define_node(module);
  define_history(module);
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<Tracing>(module, "Tracing")
      .def(py::init<py::handle, const py::dict&>())
      .def("hooks", [](const Tracing& one) { return one.model.hooks(); })
      .def_property_readonly("notes", [](const Tracing& one) { return one.model.notes(); })
      .def(
          "input",
          [](Tracing& one, const at::Tensor& tensor, const std::string& name) {
            one.tracer.input(tensor, name);
          },
          release)
      .def(
          "output",
          [](Tracing& one, const at::Tensor& tensor, const std::string& name) {
            one.tracer.output(tensor, name);
          },
          release)
      .def(
          "start", [](Tracing& one) { one.tracer.start(); }, release)
      .def(
          "stop", [](Tracing& one, const std::string& error) { one.tracer.stop(error); }, release)
      .def(
          "finish", [](Tracing& one) { return one.tracer.finish(); }, release);
}

const DefinedView defined("trace", &define);

}  // namespace
}  // namespace torchtap::python
