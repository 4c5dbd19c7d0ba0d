#include <ATen/Functions.h>
#include <CLI/CLI.hpp>
#include <torch/csrc/autograd/grad_mode.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <torchtap/selectors/selectors.hpp>

#include "commands.hpp"
#include "files/dtypes.hpp"
#include "files/json.hpp"
#include "models/call_watch.hpp"
#include "models/exported_packages.hpp"
#include "models/model.hpp"
#include "models/sizes.hpp"
#include "options/option_checks.hpp"
#include "terminal/message_text.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

std::string list_examples() {
  return c10::str(R"(
Lists the modules of a TorchScript file as a tree, with the indices, names and types by which `torchtap record`
selects them. With --input or --random the model runs once, on the first batch, and the list shows the shape of each
module's output ("2x" before it: the first of two calls; "+1": one more tensor; "-": not called).

Parameters, their share of the model's parameters, and bytes include submodules; only the bytes include buffers. A
shared tensor counts once, and packed weights of quantized modules count as parameters. A module without the method
(a ModuleList, or a module that a trace never called) cannot be recorded; its type is in brackets. On a narrow
terminal names are cut and columns left out, as lines below the table say; a file gets everything.

Of a package that AOTInductor compiled (.pt2) the list has the modules that were tapped when it was exported, how often
one forward calls them, and whether their inputs or outputs can be recorded, or replaced in C++.

)",
                  describe_inputs(), R"(

Examples:
  torchtap list model.pt
  torchtap list model.pt --random 1x3x224x224
  torchtap list model.pt --paths --depth 2
  torchtap list model.pt2
  torchtap list model.pt --json | jq '.modules[] | select(.type == "Conv2d") | .path'

Exit status: 0, or 2 if the file cannot be read or the model cannot be run.)");
}

struct ListOptions {
  std::string model;
  InputOptions inputs;
  std::string method = "forward";
  std::int64_t depth = -1;
  bool paths = false;
  bool enable_grad = false;
  bool json = false;
};

/// `modules` and `watch` use the same walk.
struct Listing {
  selectors::ModuleView modules;
  std::unique_ptr<Watch> watch;  // null if the model was not run
  std::vector<Form> inputs;
};

void run_once(const torch::jit::Module& model, const ListOptions& options, Listing& listing) {
  Inputs inputs(options.inputs);
  const auto batch = inputs.next();
  TORCH_CHECK_VALUE(batch.has_value(), "the files given with --input hold no batch.");
  const at::AutoGradMode mode(options.enable_grad);
  const auto arguments = to_arguments(model, options.method, *batch, at::kCPU, false);
  listing.inputs = forms_of(arguments);
  auto watch = std::make_unique<Watch>(listing.modules);
  call(model, options.method, arguments, [&] { watch.reset(); });
  listing.watch = std::move(watch);
}

bool shown(const model::ModuleRef& module, const ListOptions& options) {
  return options.depth < 0 || module.depth() <= options.depth;
}

double share(const Sizes& part, const Sizes& whole) {
  return whole.parameters == 0 ? 0
                               : static_cast<double>(part.parameters) / static_cast<double>(whole.parameters);
}

std::string share_to_text(double share) {
  char text[16];
  std::snprintf(text, sizeof text, share > 0 && share < 0.0005 ? "<0.1" : "%.1f", 100 * share);
  return text;
}

Json forms_json(const std::vector<Form>& forms) {
  Json list = Json::array();
  for (const auto& form : forms) {
    list.push_back(form.defined ? Json{{"shape", form.shape}, {"dtype", dtype_text(form.dtype)}}
                                : Json(nullptr));
  }
  return list;
}

void list_as_json(const Listing& listing, const ListOptions& options) {
  const Sizes whole = sizes_of(listing.modules.vector().front().script());
  Json all = Json::array();
  for (const auto& module : listing.modules) {
    if (!shown(module, options)) continue;
    const Sizes sizes = sizes_of(module.script());
    all.push_back({{"index", module.index()},
                   {"path", module.path()},
                   {"aliases", module.aliases()},
                   {"type", module.type()},
                   {"qualified_type", module.qualified_type()},
                   {"depth", module.depth()},
                   {"callable", module.has_forward()},
                   {"parameters", sizes.parameters},
                   {"trainable", sizes.trainable},
                   {"share", share(sizes, whole)},
                   {"buffers", sizes.buffers},
                   {"bytes", sizes.bytes}});
    if (listing.watch == nullptr) continue;
    const auto seen = listing.watch->at(module.index());
    all.back()["calls"] = seen.calls;
    all.back()["outputs"] = seen.calls == 0 ? Json(nullptr) : forms_json(seen.outputs);
    all.back()["outputs_differ"] = seen.other_outputs != 0;
  }
  Json document{{"model", options.model}, {"method", options.method}};
  if (listing.watch != nullptr) document["inputs"] = forms_json(listing.inputs);
  document["total"] = {{"modules", listing.modules.vector().size()},
                       {"parameters", whole.parameters},
                       {"trainable", whole.trainable},
                       {"parameter_bytes", whole.parameter_bytes},
                       {"buffers", whole.buffers},
                       {"bytes", whole.bytes}};
  document["modules"] = std::move(all);
  print(document);
}

std::string name_of(const model::ModuleRef& module, const ListOptions& options) {
  std::string name = module.path();
  if (name.empty()) name = "(root)";
  if (!options.paths) {
    name = std::string(2 * static_cast<std::size_t>(module.depth()), ' ') + name.substr(name.rfind('.') + 1);
  }
  for (const auto& alias : module.aliases()) name += " = " + alias;
  return name;
}

std::string output_of(const Watch::Module& seen) {
  if (seen.calls == 0) return "-";
  std::string text = seen.calls > 1 ? std::to_string(seen.calls) + "x " : "";
  std::size_t others = 0;
  const Form* first = nullptr;
  for (const auto& form : seen.outputs) {
    if (form.defined && first == nullptr) {
      first = &form;
    } else if (form.defined) {
      ++others;
    }
  }
  text += first == nullptr ? "no tensor" : shape_to_text(first->shape);
  if (seen.other_outputs != 0) text += " …";
  return others == 0 ? text : text + " +" + std::to_string(others);
}

void list_as_table(const Listing& listing, const ListOptions& options) {
  using Align = Table::Align;
  const Sizes whole = sizes_of(listing.modules.vector().front().script());
  std::vector<Table::Column> columns{
      {"index", Align::right, 20}, {"module", Align::left, Table::kAlways, 14}, {"type", Align::left, 40, 7}};
  if (listing.watch != nullptr) columns.push_back({"output"});
  columns.push_back({"parameters", Align::right});
  columns.push_back({"%", Align::right, 30});
  columns.push_back({"bytes", Align::right, 10});
  Table table(std::move(columns));
  for (const auto& module : listing.modules) {
    if (!shown(module, options)) continue;
    const Sizes sizes = sizes_of(module.script());
    std::vector<std::string> cells{std::to_string(module.index()), name_of(module, options),
                                   module.has_forward() ? module.type() : "(" + module.type() + ")"};
    if (listing.watch != nullptr) cells.push_back(output_of(listing.watch->at(module.index())));
    cells.push_back(count_text(sizes.parameters));
    cells.push_back(share_to_text(share(sizes, whole)));
    cells.push_back(bytes_text(sizes.bytes));
    table.add(std::move(cells));
  }
  table.print(std::cout);
  std::cout << '\n';
  if (listing.watch != nullptr) std::cout << "input       " << to_text(listing.inputs) << '\n';
  std::cout << "modules     " << count_text(static_cast<std::int64_t>(listing.modules.vector().size()))
            << '\n'
            << "parameters  " << count_text(whole.parameters) << " (" << bytes_text(whole.parameter_bytes)
            << ")\n"
            << "trainable   " << (whole.trainable == whole.parameters ? "all" : count_text(whole.trainable))
            << '\n'
            << "buffers     " << count_text(whole.buffers) << " ("
            << bytes_text(whole.bytes - whole.parameter_bytes) << ")\n";
}

void list_package(const ListOptions& options, bool has_method) {
  const bool runs = !options.inputs.files.empty() || !options.inputs.random.empty();
  TORCH_CHECK_VALUE(
      !runs && !has_method && !options.enable_grad && options.depth < 0,
      "of a package (.pt2) torchtap list shows what it says about itself; --input, --random, --method, "
      "--enable-grad and --depth are for TorchScript files.");
  Package(options.model).list(options.json);
}

}  // namespace

void add_list(CLI::App& app) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command =
      app.add_subcommand("list", "List the modules of a TorchScript file: tree, shapes, sizes");
  command->footer(list_examples());
  command
      ->add_option("model", options->model,
                   "A file of torch.jit.script or torch.jit.trace, or a tapped package (.pt2)")
      ->required();
  add_input_options(*command, options->inputs, /*one_call=*/true);
  command->add_option("--depth", options->depth, "Depth limit below the root")->transform(whole_number(0));
  auto* method = command->add_option("--method", options->method, "The method whose modules are listed")
                     ->capture_default_str();
  command->add_flag("--paths", options->paths, "Full paths, as record --names takes them, instead of a tree");
  command->add_flag("--enable-grad", options->enable_grad,
                    "Run the model with gradients enabled; some modules call their submodules only then");
  command->add_flag("--json", options->json, "Write JSON");
  add_library_option(*command);
  command->callback([options, method] {
    if (is_package(options->model)) {
      list_package(*options, method->count() != 0);
      return;
    }
    const torch::jit::Module model = load_model(options->model);
    const bool runs = !options->inputs.files.empty() || !options->inputs.random.empty();
    if (method->count() != 0 || runs) find_method(model, options->method);
    Listing listing{selectors::modules(model, options->method), nullptr, {}};
    const bool frozen = listing.modules.vector().front().frozen();
    if (runs) run_once(model, *options, listing);
    if (options->json) {
      list_as_json(listing, *options);
    } else {
      list_as_table(listing, *options);
    }
    if (frozen) {
      std::cerr
          << "torchtap: the model was frozen, so its submodules are inlined; list and record the file from "
             "before freezing.\n";
    }
  });
}

}  // namespace torchtap::tools
