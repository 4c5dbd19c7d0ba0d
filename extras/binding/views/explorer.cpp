// The live page of models of Python.

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/explorer/explorer.hpp>

#include "viewed_model.hpp"

namespace torchtap::python {
namespace {

namespace explorer = views::explorer;

explorer::ExplorerOptions options_of(const py::dict& given) {
  explorer::ExplorerOptions options;
  if (!given["every"].is_none()) options.every(option<std::int64_t>(given, "every"));
  if (!given["overhead"].is_none()) options.overhead(option<double>(given, "overhead"));
  options.save(option<std::string>(given, "save")).name(option<std::string>(given, "name"));
  options.memory(option<std::int64_t>(given, "memory"));
  static const auto& kinds = *new const std::map<std::string, unsigned>{
      {"input", explorer::Input},          {"output", explorer::Output},
      {"grad_input", explorer::GradInput}, {"grad_output", explorer::GradOutput},
      {"parameter", explorer::Parameter},  {"parameter_grad", explorer::ParameterGrad}};
  unsigned record = 0;
  for (const std::string& kind : option<std::vector<std::string>>(given, "record")) {
    const auto found = kinds.find(kind);
    TORCH_CHECK_VALUE(found != kinds.end(), "torchtap.explore: nothing is called \"", kind,
                      "\" that could be recorded; there are \"input\", \"output\", \"grad_input\", "
                      "\"grad_output\", \"parameter\" and \"parameter_grad\".");
    record |= found->second;
  }
  if (record != 0) options.record(record);
  return options;
}

/// Models, and the page that shows them.
struct Explored {
  std::vector<std::unique_ptr<ViewedModel>> models;
  std::optional<explorer::Explorer> page;

  explicit Explored(const py::dict& options) : page(options_of(options)) {}

  explorer::Explorer& open() {
    TORCH_CHECK(page.has_value(),
                "torchtap.explore: the page was closed; call save() in its block, or have a run written by "
                "explore(model, save=\"folder\").");
    return *page;
  }
};

void define(py::module_& module) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<Explored>(module, "Explored")
      .def(py::init<const py::dict&>())
      .def("attach",
           [](Explored& one, py::handle model, const selectors::Selector& selector, const std::string& name) {
             auto viewed = std::make_unique<ViewedModel>(model);
             unlocked([&] {
               selectors::select(viewed->modules(), selector);  // says which name finds nothing
               one.open().attach(viewed->modules(), selector, name);
             });
             one.models.push_back(std::move(viewed));
             return py::make_tuple(one.models.back()->hooks(/*now=*/true), one.models.back()->notes());
           })
      .def(
          "serve",
          [](Explored& one, std::int64_t port, const std::string& address, const std::string& token,
             bool control) {
            return one.open().serve(
                explorer::ServeOptions().port(port).address(address).token(token).control(control));
          },
          release)
      .def(
          "step", [](Explored& one, std::int64_t number) { one.open().step(number); }, release)
      .def(
          "steps", [](Explored& one) { return one.open().step(); }, release)
      .def(
          "scalar",
          [](Explored& one, const std::string& name, const at::Tensor& value) {
            one.open().scalar(name, value);
          },
          release)
      .def(
          "export_page", [](Explored& one, const std::string& file) { one.open().export_page(file); },
          release)
      .def(
          "errors", [](Explored& one) { return one.open().errors(); }, release)
      .def(
          "close",
          [](Explored& one) {
            // Taken out first: whoever asks meanwhile hears that it was closed.
            auto ended = std::exchange(one.page, std::nullopt);
            ended.reset();
          },
          release);
}

const DefinedView defined("explorer", &define);

}  // namespace
}  // namespace torchtap::python
