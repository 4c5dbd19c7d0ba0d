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
      .def_readonly("function", &Candidate::function,
                    "The operation: \"aten::conv2d\"; \"input\" and \"outside\" for tensors that none made.")
      .def_readonly("type", &Candidate::type, "Its name as in labels: \"conv2d\".")
      .def_readonly("module", &Candidate::module, "The path of the module that it ran in.")
      .def_readonly("index", &Candidate::index, "Its place among the operation's results, from 0.")
      .def_readonly("tensor", &Candidate::tensor, "The tensor itself.");
  py::class_<trace::ModuleCall>(module, "ModuleCall", "One call of a module.")
      .def_readonly("path", &trace::ModuleCall::path, "The module's path.")
      .def_readonly("type", &trace::ModuleCall::type, "The name of its class.")
      .def_readonly("call", &trace::ModuleCall::call, "The number of this call in the forward, from 0.")
      .def("__repr__", [](const trace::ModuleCall& one) { return c10::str(one.path, ":", one.call + 1); });
  py::class_<trace::ModuleSummary>(module, "ModuleSummary", "A module that ran in a pass.")
      .def_readonly("path", &trace::ModuleSummary::path, "The module's path.")
      .def_readonly("type", &trace::ModuleSummary::type, "The name of its class.")
      .def_readonly("calls", &trace::ModuleSummary::calls, "How often it was called.")
      .def_readonly("nodes", &trace::ModuleSummary::nodes, "Operations in it and in the modules below it.")
      .def_readonly("parameters", &trace::ModuleSummary::parameters, "Elements of its own parameters.")
      .def_readonly("parameter_bytes", &trace::ModuleSummary::parameter_bytes, "Bytes of these.");
  py::class_<trace::ParameterUse>(module, "ParameterUse", "A parameter or buffer that an operation read.")
      .def_readonly("path", &trace::ParameterUse::path, "Its name: \"features.6.weight\".")
      .def_property_readonly(
          "shape", [](const trace::ParameterUse& one) { return py::tuple(py::cast(one.shape)); },
          "Its shape.")
      .def_readonly("dtype", &trace::ParameterUse::dtype, "Its dtype.")
      .def_readonly("elements", &trace::ParameterUse::elements, "How many elements it has.")
      .def_readonly("bytes", &trace::ParameterUse::bytes, "The bytes of these.")
      .def_readonly("buffer", &trace::ParameterUse::buffer, "Whether it is a buffer.")
      .def_readonly("trainable", &trace::ParameterUse::trainable, "Whether it requires gradients.")
      .def("__repr__", [](const trace::ParameterUse& one) { return one.path; });
  py::class_<trace::Argument>(module, "Argument", "One argument of an operation.")
      .def_readonly("name", &trace::Argument::name, "Its name in the operator's schema: \"stride\".")
      .def_readonly("text", &trace::Argument::text,
                    "Its value in short; of tensors the label, or the path of a parameter.")
      .def_readonly("nodes", &trace::Argument::nodes,
                    "Positions of the nodes that it refers to; -1 for a tensor that is none.")
      .def("__repr__", [](const trace::Argument& one) { return one.name + "=" + one.text; });
  py::class_<trace::Fault>(module, "Fault", "What validation found wrong with an operation.")
      .def_property_readonly(
          "kind", [](const trace::Fault& one) { return kind_name(one.kind); }, "What kind of fault it is.")
      .def_readonly("label", &trace::Fault::label, "The operation's label.")
      .def_readonly("function", &trace::Fault::function, "The operator: \"aten::add_.Tensor\".")
      .def_readonly("message", &trace::Fault::message, "What is wrong, in a sentence.")
      .def("__repr__", [](const trace::Fault& one) { return one.label + ": " + one.message; });
  py::class_<trace::Validation>(module, "Validation", "True if nothing is wrong.")
      .def("__bool__", [](const trace::Validation& one) { return static_cast<bool>(one); })
      .def("__str__", &printed<trace::Validation>)
      .def_readonly("findings", &trace::Validation::findings, "What is wrong, as `Fault`s.")
      .def_readonly("unconfirmed", &trace::Validation::unconfirmed,
                    "What could not be confirmed, as `Fault`s; no mistakes for that.")
      .def_readonly("confirmed", &trace::Validation::confirmed, "Operations that gave the same bits again.")
      .def_readonly("random", &trace::Validation::random,
                    "Operations that took random numbers, which were given to them again.")
      .def_readonly("undetermined", &trace::Validation::undetermined,
                    "Labels of operations that cannot be judged, as of random numbers of a generator of the "
                    "program's own.")
      .def_readonly("perturbed", &trace::Validation::perturbed,
                    "How often an operation was run with a parent changed, to see that it is noticed.")
      .def_readonly("followed", &trace::Validation::followed,
                    "Operations whose results were changed in a run of the pass, to see who reads them.");
}

void define_node(py::module_& module) {
  const auto text = [](const std::string& (Node::*get)() const&) {
    return [get](const Node& one) { return (one.*get)(); };
  };
  py::class_<Node>(module, "Node", "One tensor that a forward computed, and where it came from.")
      .def_property_readonly(
          "kind", [](const Node& one) { return kind_name(one.kind()); },
          "\"operation\", \"input\", \"output\" or \"outside\".")
      .def_property_readonly("position", &Node::position, "Its place in the history, from 0; inputs count.")
      .def_property_readonly("label", text(&Node::label),
                             "\"conv2d_3_7\": the third layer of type conv2d, the layer 7 of all; "
                             "\"linear_1_1:2\" is its second pass.")
      .def_property_readonly("layer_label", &Node::layer_label, "The label without the pass.")
      .def_property_readonly("short_label", &Node::short_label, "\"conv2d_3\", or \"linear_1:2\".")
      .def_property_readonly("type", text(&Node::type), "The operation as in labels: \"add\" for `add_`.")
      .def_property_readonly("name", text(&Node::name),
                             "The name of an input or output, \"input.0\"; empty for others.")
      .def_property_readonly(
          "function", text(&Node::function),
          "The operator and its overload, \"aten::add_.Tensor\"; empty for others than operations.")
      .def_property_readonly("layer", &Node::layer,
                             "The place of its layer among all; nodes with the same one are passes of it.")
      .def_property_readonly("pass_number", &Node::pass, "Which pass of the layer it is, from 1.")
      .def_property_readonly("passes", &Node::passes, "How many passes the layer has.")
      .def_property_readonly(
          "shape", [](const Node& one) { return py::tuple(py::cast(one.shape())); },
          "The shape of the tensor; () for nested ones, too.")
      .def_property_readonly("dtype", &Node::dtype, "The dtype of the tensor.")
      .def_property_readonly("device", &Node::device, "The device of the tensor.")
      .def_property_readonly("bytes", &Node::bytes, "The bytes of its elements.")
      .def_property_readonly("requires_grad", &Node::requires_grad, "Whether the tensor required gradients.")
      .def_property_readonly("saved", &Node::saved, "Whether the tensor was kept.")
      .def_property_readonly(
          "tensor", [](const Node& one) { return unlocked([&] { return one.tensor(); }); },
          "The tensor as the operation returned it, in `shape`. A ValueError if it was not kept, or changed "
          "in place after the forward.")
      .def_property_readonly(
          "gradient",
          [](const Node& one) -> std::optional<at::Tensor> {
            if (!one.has_gradient()) return std::nullopt;
            return unlocked([&] { return one.gradient(); });
          },
          "The sum of the gradients that arrived, in `shape`; None without one. See `gradients=True`.")
      .def_property_readonly("parents", &Node::parents, "The nodes that the operation read, each once.")
      .def_property_readonly("children", &Node::children, "The nodes whose operations read it.")
      .def_property_readonly("siblings", &Node::siblings, "Other nodes with a common parent.")
      .def_property_readonly("spouses", &Node::spouses, "Other nodes with a common child.")
      .def_property_readonly("ancestors", &Node::ancestors,
                             "All nodes from which there is a path to this one.")
      .def_property_readonly("descendants", &Node::descendants,
                             "All nodes to which there is a path from this one.")
      .def_property_readonly("input_ancestors", &Node::input_ancestors, "The inputs that it depends on.")
      .def_property_readonly("output_descendants", &Node::output_descendants,
                             "The outputs that depend on it.")
      .def_property_readonly(
          "distance_from_input", &Node::distance_from_input,
          "The shortest and the longest path from an input, in operations; -1 if there is none.")
      .def_property_readonly(
          "distance_to_output", &Node::distance_to_output,
          "The shortest and the longest path to an output, in operations; -1 if there is none.")
      .def_property_readonly(
          "arguments", [](const Node& one) { return one.arguments(); },
          "The arguments of the operation, as `Argument`s.")
      .def_property_readonly(
          "parameters", [](const Node& one) { return one.parameters(); },
          "The parameters and buffers that it read, as `ParameterUse`s.")
      .def_property_readonly(
          "modules", [](const Node& one) { return one.modules(); },
          "The calls of modules that it ran in, outermost first, without the model's.")
      .def_property_readonly(
          "output_of", [](const Node& one) { return one.output_of(); },
          "The calls of modules that returned this tensor, innermost first.")
      .def_property_readonly("in_place", &Node::in_place,
                             "Whether the operation wrote to an argument that it returned.")
      .def_property_readonly("view", &Node::view, "Whether the tensor shares memory with an argument.")
      .def_property_readonly("random", &Node::random, "Whether the operation took random numbers.")
      .def_property_readonly("created_inside", &Node::created_inside,
                             "Whether it was made of no tensor, as by `torch.zeros`.")
      .def_property_readonly(
          "read_by_program", &Node::read_by_program,
          "Whether the program read its value (`item()`), on which what came next may depend.")
      .def_property_readonly("result", &Node::result, "Its place among the operation's results, from 0.")
      .def_property_readonly("results", &Node::results, "How many results the operation has.")
      .def_property_readonly("seconds", &Node::seconds,
                             "The time of the operation, in seconds, without the trace's own.")
      .def_property_readonly("keys", &Node::keys, "All names by which the history finds it.")
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
      .def("find", &History::find, "The nodes that a label, a module's path or a glob finds.")
      .def(
          "parents",
          [](const History& one, const py::object& which) { return node_of(one, which).parents(); },
          "The nodes that the operation of a node read.")
      .def(
          "children",
          [](const History& one, const py::object& which) { return node_of(one, which).children(); },
          "The nodes whose operations read a node.")
      .def_property_readonly("inputs", &History::inputs, "The nodes of the forward's inputs.")
      .def_property_readonly("outputs", &History::outputs,
                             "The nodes of the tensors that the forward returned.")
      .def_property_readonly("labels", &History::labels, "The labels of all nodes, in order.")
      .def_property_readonly("operations", &History::operations, "How many operations ran.")
      .def_property_readonly("layers", &History::layers, "How many layers they are of.")
      .def("passes", &History::passes, "The nodes of a layer, by its number.")
      .def_property_readonly("bytes", &History::bytes, "The bytes of all tensors.")
      .def_property_readonly("saved", &History::saved, "How many tensors were kept.")
      .def_property_readonly("saved_bytes", &History::saved_bytes, "The bytes of these.")
      .def_property_readonly("dropped", &History::dropped, "How many were not kept, for lack of room.")
      .def_property_readonly("copied", &History::copied,
                             "How many were copied, because their memory was written to later.")
      .def_property_readonly(
          "model", [](const History& one) { return one.model(); }, "The name of the model's class.")
      .def_property_readonly(
          "modules", [](const History& one) { return one.modules(); },
          "The modules that ran, as `ModuleSummary`s.")
      .def_property_readonly(
          "unreached_modules", [](const History& one) { return one.unreached_modules(); },
          "The paths of modules whose calls cannot be seen.")
      .def_property_readonly(
          "parameters", [](const History& one) { return one.parameters(); },
          "The parameters and buffers that were read, each once.")
      .def_property_readonly("seconds", &History::seconds,
                             "The time of the forward, in seconds, with the trace's own.")
      .def_property_readonly("operation_seconds", &History::operation_seconds,
                             "The time of its operations, in seconds.")
      .def_property_readonly(
          "error", [](const History& one) { return one.error(); },
          "The message of the exception that ended the forward; empty if none did.")
      .def("validate", &History::validate, release,
           "Runs each operation again, and says which did not give the same bits.")
      .def("csv", &History::csv, release, "A row for each node, as text.")
      .def("json", &History::json, release, "The history without its tensors, as text.")
      .def(
          "save_to",
          [](const History& one, const std::string& folder, bool mkdir, bool overwrite) {
            one.save(folder, storage::SaveOptions().mkdir(mkdir).overwrite(overwrite));
          },
          release, "See `save`.")
      .def(
          "dot_of",
          [](const History& one, const py::dict& options) {
            const auto chosen = draw_options_of(options);
            return unlocked([&] { return one.dot(chosen); });
          },
          "See `dot`.")
      .def(
          "draw_to",
          [](const History& one, const std::string& file, const py::dict& options) {
            const auto chosen = draw_options_of(options);
            unlocked([&] { one.draw(file, chosen); });
          },
          "See `draw`.")
      .def("text", &printed<History>, "What `print` shows.")
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
