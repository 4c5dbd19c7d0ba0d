#include <CLI/CLI.hpp>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include <torchtap/base/error.hpp>
#include <torchtap/base/glob.hpp>
#include <torchtap/views/trace/trace.hpp>

#include "commands.hpp"
#include "files/json.hpp"
#include "models/inputs.hpp"
#include "models/model.hpp"
#include "options/option_checks.hpp"
#include "recordings/manifest.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/message_text.hpp"

namespace torchtap::tools {
namespace {

namespace fs = std::filesystem;
namespace trace = views::trace;
using trace::History;
using trace::Node;

std::string trace_examples() {
  return c10::str(R"(
Runs a TorchScript file once and lists every operation that it calls, those outside of modules included, with shapes,
sizes and times; or shows a trace that was saved before. Tensors have labels: conv2d_3_7 is the third layer of type
conv2d and layer 7 of all layers, from 0; operations that use the same parameters, or repeat, are passes of one layer
(linear_1_1:2).

)",
                  describe_inputs(), R"(

Tensors are called by their label (conv2d_3_7, conv2d_3), the path of the module whose output they are (features.6), or
their position (7, or -1 for the last); --entry and --keep also take patterns ('conv*').

Pictures need Graphviz (apt install graphviz), except for .dot files. Of more than 150 nodes, modules are drawn as one box
from the deepest on, and of more than Graphviz can lay out in a minute; --max-nodes, --depth and --time-limit override that.

Examples:
  torchtap trace model.pt --random 1x3x224x224 --save alexnet/ --draw alexnet.svg
  torchtap trace model.pt --random 1x3x224x224 --entry features.6
  torchtap trace model.pt --input batch.pt --keep 'conv*,classifier.6' --save some/
  torchtap trace model.pt --input batch.pt --draw model.pdf --rolled --depth 2
  torchtap trace alexnet/ --entry conv2d_3_7
  torchtap trace alexnet/ --csv > operations.csv
  torchtap compare before/ after/                           # operation by operation

Exit status: 0; 1 if --validate finds something wrong; 2 on errors.)");
}

trace::Direction direction_of(const std::string& word) {
  if (word == "top-down") return trace::Direction::top_down;
  return word == "left-right" ? trace::Direction::left_right : trace::Direction::bottom_up;
}

struct TraceOptions {
  std::string source;
  InputOptions inputs;
  std::vector<std::string> what;
  std::string method = "forward";
  bool train = false;
  bool enable_grad = false;
  std::string device = "cpu";
  bool leaf = false;
  bool lines = false;
  bool validate = false;

  std::string save;
  bool overwrite = false;
  std::string draw;
  bool rolled = false;
  std::optional<std::int64_t> depth;
  std::int64_t max_nodes = trace::DrawOptions().max_nodes();
  std::int64_t time_limit = static_cast<std::int64_t>(trace::DrawOptions().time_limit());
  bool parameters = false;
  std::string direction = "bottom-up";

  std::string entry;
  bool json = false;
  bool csv = false;

  Format format() const { return json ? Format::json : csv ? Format::csv : Format::table; }
};

trace::TraceOptions what_to_keep(const TraceOptions& options) {
  trace::TraceOptions keep;
  keep.source(options.lines);
  if (options.leaf) keep.level(trace::TraceOptions::Level::leaf);
  if (options.what.size() == 1 && options.what.front() == "none") return keep;
  if (options.what.size() == 1 && options.what.front() == "all") return keep.save(trace::Save::all);
  if (!options.what.empty()) return keep.save(options.what);
  if (!options.save.empty() || options.validate) return keep.save(trace::Save::all);
  return options.entry.empty() ? keep : keep.save(std::vector<std::string>{options.entry});
}

/// Runs the model once. If it fails, the history has what was logged until then, and `History::error`.
History run(const TraceOptions& options) {
  const at::Device device(options.device);
  torch::jit::Module model = load_model(options.source, device);
  const torch::jit::Method method = find_method(model, options.method);
  model.train(options.train);
  Inputs inputs(options.inputs);
  const auto batch = inputs.next();
  TORCH_CHECK_VALUE(batch.has_value(), "the files given with --input hold no batch.");
  const at::AutoGradMode mode(options.enable_grad);
  const auto arguments = to_arguments(model, options.method, *batch, device, false);
  trace::Tracer tracer(selectors::modules(model, options.method), what_to_keep(options));
  for (const c10::IValue& argument : arguments) tracer.input(argument);
  try {
    tracer.run([&] { tracer.output(method(arguments)); });
  } catch (const std::exception& error) {
    std::cerr << "torchtap: " << explain(error) << '\n';
    tracer.options().save(std::vector<std::string>{});  // a name may belong to an operation that did not run
  }
  return tracer.finish();
}

History load(const TraceOptions& options) {
  const bool inputs = !options.inputs.files.empty() || !options.inputs.random.empty();
  TORCH_CHECK_VALUE(
      !inputs && options.what.empty() && !options.validate, "\"", options.source,
      "\" is a saved trace, which is not run; omit --input, --random, --keep and --validate, or name a "
      "TorchScript file.");
  TORCH_CHECK_VALUE(options.save.empty(), "\"", options.source, "\" is saved already; omit --save.");
  return History::load(options.source);
}

std::vector<Node> layer_of(const History& history, const std::string& name) {
  if (!base::is_glob(name)) return {history[name]};
  std::vector<Node> found = history.find(name);
  TORCH_CHECK_INDEX(!found.empty(), "--entry ", name, " matches no label and no path of a module.");
  return found;
}

/// The lines of the table, of one layer or of all.
void print_csv(const History& history, const std::string& layer) {
  const std::string text = history.csv();
  std::vector<std::string> lines;  // the titles, then one for each node
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted || text[i] != '\n') continue;
    lines.push_back(text.substr(begin, i + 1 - begin));
    begin = i + 1;
  }
  if (layer.empty()) {
    std::cout << text;
    return;
  }
  std::cout << lines.front();
  for (const Node& node : layer_of(history, layer)) {
    std::cout << lines[static_cast<std::size_t>(node.position()) + 1];
  }
}

/// The rows of the table, of one layer or of all.
Json rows_of(const History& history, const std::string& layer) {
  Json all = json::parse(history.json());
  if (layer.empty()) return all;
  Json rows = Json::array();
  for (const Node& node : layer_of(history, layer))
    rows.push_back(all[static_cast<std::size_t>(node.position())]);
  return rows;
}

void print_json(const History& history, const TraceOptions& options) {
  print(Json{{"source", options.source},
             {"model", history.model()},
             {"operations", history.operations()},
             {"tensors", history.size()},
             {"bytes", history.bytes()},
             {"kept", history.saved()},
             {"kept_bytes", history.saved_bytes()},
             {"layers", history.layers()},
             {"seconds", history.seconds()},
             {"error", history.error().empty() ? Json(nullptr) : Json(history.error())},
             {"unreached_modules", history.unreached_modules()},
             {"nodes", rows_of(history, options.entry)}});
}

template <class Printed>
void print_text(const Printed& printed) {
  std::ostringstream text;
  text << printed;
  std::cout << printable(text.str(), /*keep_lines=*/true);
}

void show(const History& history, const TraceOptions& options) {
  switch (options.format()) {
    case Format::json:
      return print_json(history, options);
    case Format::csv:
      return print_csv(history, options.entry);
    case Format::table:
      break;
  }
  if (options.entry.empty()) return print_text(history);
  bool first = true;
  for (const Node& node : layer_of(history, options.entry)) {
    if (!first) std::cout << '\n';
    first = false;
    print_text(node);
  }
}

void draw(const History& history, const TraceOptions& options) {
  history.draw(options.draw, trace::DrawOptions()
                                 .rolled(options.rolled)
                                 .depth(options.depth)
                                 .max_nodes(options.max_nodes)
                                 .time_limit(static_cast<double>(options.time_limit))
                                 .parameters(options.parameters)
                                 .direction(direction_of(options.direction)));
}

void check_picture(const std::string& file) {
  const fs::path path(file), folder = path.parent_path();
  std::string ending = path.extension();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  const std::array<std::string_view, 5> endings{".svg", ".png", ".pdf", ".dot", ".gv"};
  TORCH_CHECK_VALUE(
      std::find(endings.begin(), endings.end(), ending) != endings.end(), "--draw \"", file,
      "\" should end in .svg, .png or .pdf, which Graphviz draws, or in .dot or .gv for its input.");
  std::error_code error;
  TORCH_CHECK_VALUE(folder.empty() || fs::is_directory(folder, error), "--draw \"", file,
                    "\": there is no folder \"", folder.string(), "\"; make it first, or name another one.");
}

/// Errors are reported before the model runs, which may take long.
void check_before(const TraceOptions& options) {
  if (!options.draw.empty()) check_picture(options.draw);
  const bool all = options.what.empty() || (options.what.size() == 1 && options.what.front() == "all");
  TORCH_CHECK_VALUE(!options.validate || all, "--validate needs all tensors; omit --keep.");
  for (const std::string& place : {options.save, options.draw}) {
    if (!place.empty()) check_free(place, options.overwrite);
  }
}

void trace_or_show(const TraceOptions& options) {
  check_before(options);
  const History history = fs::is_directory(options.source) ? load(options) : run(options);
  const bool failed = !history.error().empty() && !fs::is_directory(options.source);
  if (!options.save.empty()) {
    const Interrupt interrupt;  // a file that was begun is finished, so that no remains lie beside it
    history.save(options.save, storage::SaveOptions().mkdir(true).overwrite(options.overwrite));
    if (interrupt.signal() != 0) end_by(interrupt.signal());
  }
  if (!failed || options.entry.empty()) show(history, options);
  if (!options.draw.empty()) draw(history, options);
  if (failed) throw CLI::RuntimeError(2);
  if (!options.validate) return;
  const trace::Validation validation = history.validate();
  if (options.format() == Format::table) {
    std::cout << '\n';
    print_text(validation);
  }
  if (!validation) throw CLI::RuntimeError(1);
}

void add_options_of_runs(CLI::App& command, TraceOptions& options) {
  add_input_options(command, options.inputs, /*one_call=*/true);
  command
      .add_option("--keep", options.what,
                  "Which tensors to keep: all, none, or names and patterns such as 'conv*,features.6'; by "
                  "default all "
                  "with --save, and those of --entry")
      ->delimiter(',');
  command.add_option("--method", options.method, "The method to call")->capture_default_str();
  add_library_option(command);
  command.add_flag("--train", options.train, "Run the model in training mode; otherwise in evaluation mode");
  command.add_flag("--enable-grad", options.enable_grad, "Run the model with gradients enabled");
  command.add_option("--device", options.device, "Where the model runs: cpu, cuda, cuda:1")
      ->capture_default_str();
  command.add_flag("--leaf", options.leaf,
                   "List what Python's __torch_dispatch__ sees instead of what the model calls");
  command.add_flag("--source", options.lines, "Note the lines of TorchScript that call operations");
  command.add_flag(
      "--validate", options.validate,
      "Run every operation again from its kept inputs, compare bit by bit, and check who reads what");
  command.add_option("-o,--save", options.save, "Directory for the trace and the tensors")->check(place());
  add_overwrite(command, options.overwrite);
}

}  // namespace

void add_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* command = app.add_subcommand("trace", "List, keep and draw every operation of a forward pass");
  command->footer(trace_examples());
  command
      ->add_option("file", options->source, "A file of torch.jit.script or torch.jit.trace, or a saved trace")
      ->required()
      ->check(CLI::ExistingPath);
  add_options_of_runs(*command, *options);
  auto* draw =
      command->add_option("--draw", options->draw, "A picture: .svg, .png, .pdf, or .dot")->check(place());
  command->add_flag("--rolled", options->rolled, "Draw all passes of a layer as one")->needs(draw);
  command->add_option("--depth", options->depth, "Draw modules nested deeper than this as one box")
      ->transform(whole_number(0))
      ->needs(draw);
  command
      ->add_option("--max-nodes", options->max_nodes,
                   "Above this number of nodes, draw modules as one box from the deepest on")
      ->transform(whole_number(1))
      ->capture_default_str()
      ->needs(draw);
  command
      ->add_option("--time-limit", options->time_limit,
                   "Seconds for Graphviz; what takes longer is drawn with half as many nodes")
      ->transform(whole_number(1))
      ->capture_default_str()
      ->needs(draw);
  command->add_flag("--parameters", options->parameters, "Draw parameters and buffers as boxes of their own")
      ->needs(draw);
  command->add_option("--direction", options->direction, "Where the arrows go")
      ->check(CLI::IsMember({"bottom-up", "top-down", "left-right"}))
      ->capture_default_str()
      ->needs(draw);
  command->add_option("--entry", options->entry,
                      "Show one tensor: a label, a path of a module, a position, or a pattern");
  auto* json = command->add_flag("--json", options->json, "Write JSON");
  command->add_flag("--csv", options->csv, "Write comma-separated values, a row for each tensor")
      ->excludes(json);
  command->callback([options] { trace_or_show(*options); });
}

}  // namespace torchtap::tools
