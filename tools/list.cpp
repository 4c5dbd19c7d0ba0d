#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <torchtap/selectors/selectors.hpp>

#include "commands.hpp"
#include "json.hpp"
#include "model.hpp"
#include "sizes.hpp"
#include "terminal.hpp"

namespace torchtap::tools {
namespace {

constexpr char kExamples[] = R"(
Lists the modules of a TorchScript file: indices, paths and types as `torchtap record` selects by them. Parameters
and bytes are a module's own, those of its submodules included, buffers in the bytes alone; a tensor that is shared
counts once; packed weights of quantized modules count as parameters. A module without the method (a ModuleList, a
module that a trace never called) stands in brackets.

Examples:
  torchtap list model.pt
  torchtap list model.pt --depth 1
  torchtap list model.pt --json | jq '.modules[] | select(.type == "Conv2d") | .path'

Exit status: 0, or 2 if the file cannot be read.)";

struct Options {
  std::string model;
  std::string method = "forward";
  std::int64_t depth = -1;
  bool json = false;
};

void list_as_json(const selectors::ModuleView& modules, const Options& options) {
  Json all = Json::array();
  for (const auto& module : modules) {
    if (options.depth >= 0 && module.depth() > options.depth) continue;
    const Sizes size = sizes_of(module.script());
    all.push_back({{"index", module.index()},
                   {"path", module.path()},
                   {"aliases", module.aliases()},
                   {"type", module.type()},
                   {"qualified_type", module.qualified_type()},
                   {"depth", module.depth()},
                   {"callable", module.has_forward()},
                   {"parameters", size.parameters},
                   {"bytes", size.bytes}});
  }
  print({{"model", options.model}, {"method", options.method}, {"modules", all}});
}

void list_as_table(const selectors::ModuleView& modules, const Options& options) {
  using Align = Table::Align;
  Table table(
      {{"index", Align::right}, {"module"}, {"type"}, {"parameters", Align::right}, {"bytes", Align::right}});
  for (const auto& module : modules) {
    if (options.depth >= 0 && module.depth() > options.depth) continue;
    const Sizes size = sizes_of(module.script());
    std::string name = module.path().empty() ? "(root)" : module.path();
    for (const auto& alias : module.aliases()) name += " = " + alias;
    table.add({std::to_string(module.index()),
               std::string(2 * static_cast<std::size_t>(module.depth()), ' ') + name,
               module.has_forward() ? module.type() : "(" + module.type() + ")",
               std::to_string(size.parameters), bytes_to_text(size.bytes)});
  }
  table.print(std::cout);
}

}  // namespace

void add_list(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("list", "The modules of a TorchScript file");
  command->footer(kExamples);
  command->add_option("model", options->model, "A file of torch.jit.script or torch.jit.trace")->required();
  command->add_option("--depth", options->depth, "How far below the root to go")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--method", options->method, "The method that is to be recorded")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Write JSON");
  add_library_option(*command);
  command->callback([options] {
    const auto modules = selectors::modules(load_model(options->model), options->method);
    if (options->json) {
      list_as_json(modules, *options);
    } else {
      list_as_table(modules, *options);
    }
    if (modules.vector().front().frozen()) {
      std::cerr
          << "torchtap: the model was frozen, its submodules are inlined; list and record the file as it was "
             "before.\n";
    }
  });
}

}  // namespace torchtap::tools
