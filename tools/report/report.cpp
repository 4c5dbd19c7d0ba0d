#include <CLI/CLI.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/views/report/print.hpp>
#include <torchtap/views/report/save.hpp>

#include "commands.hpp"
#include "measured_run.hpp"
#include "models/model.hpp"
#include "options/option_checks.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

namespace report = views::report;

std::string report_examples() {
  return c10::str(R"(
Runs a TorchScript file several times and says what each module is and costs: shapes, parameters, time of forward and
backward, memory, multiply-accumulates (MACs), and where NaN or Inf came from. Of a package (.pt2) whose modules were
tapped with inputs=True it says shapes, times and memory. Or it shows a report that was saved as JSON before, and
converts it.

)",
                  describe_inputs(), R"(

Times are medians over the repeats; the bar is the share of forward and backward together. Memory is the most that
LibTorch's own allocations held in a module. "!" marks modules that look wrong; sentences below the table say why.

Examples:
  torchtap report model.pt --random 1x3x224x224 --repeat 20 --save insight.json --html insight.html
  torchtap report model.pt --input batch.pt --backward --train --depth 2
  torchtap report model.pt --random 8x128:int64:30000 --non-finite raise
  torchtap report insight.json --depth 3
  torchtap report insight.json --html page.html --save modules.csv
  torchtap report insight.json --csv | sort -t, -k1

Exit status: 0; 2 on errors, also if the model throws: then what was measured until there is shown and saved.)");
}

struct ReportOptions {
  MeasureOptions run;
  std::vector<std::string> save;
  std::string html;
  std::optional<std::int64_t> depth;
  bool overwrite = false;
  bool json = false;
  bool csv = false;
};

bool is_saved_report(const std::string& source) {
  std::string extension = std::filesystem::path(source).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return extension == ".json";
}

Measured load(const ReportOptions& options, const CLI::App& command) {
  for (const char* option : {"--input", "--idx3", "--random", "--repeat", "--warmup", "--backward", "--train",
                             "--method", "--device", "--no-memory", "--no-work", "--non-finite"}) {
    TORCH_CHECK_VALUE(command.count(option) == 0, "\"", options.run.model,
                      "\" is a saved report, which is not run; omit ", option,
                      ", or name a TorchScript file.");
  }
  Measured loaded;
  loaded.results = report::load(options.run.model);
  return loaded;
}

/// Colours are for terminals of people who did not turn them off (https://no-color.org).
bool coloured() {
  const char* off = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (off == nullptr || *off == '\0') &&
         (terminal == nullptr || std::strcmp(terminal, "dumb") != 0);
}

void show(const report::Measurements& results, const ReportOptions& options) {
  if (options.json) {
    std::cout << report::json(results);
  } else if (options.csv) {
    std::cout << report::csv(results);
  } else {
    constexpr std::size_t narrowest = 40;
    report::print(std::cout, results,
                  report::PrintOptions()
                      .width(std::max(line_width(), narrowest))
                      .depth(options.depth)
                      .colour(coloured())
                      .ascii(!utf8_locale()));
  }
}

void report_or_show(const ReportOptions& options, const CLI::App& command) {
  TORCH_CHECK_VALUE(!std::filesystem::is_directory(options.run.model), "\"", options.run.model,
                    "\" is a directory, and no TorchScript file or saved report (.json). torchtap show reads "
                    "recordings, trace saved traces, and explore runs of an explorer.");
  std::vector<std::string> files = options.save;
  if (!options.html.empty()) files.push_back(options.html);
  for (const std::string& file : files) {  // before the model runs, which may take long
    report::check_path(file);
    check_free(file, options.overwrite);
  }
  const bool saved = is_saved_report(options.run.model);
  const Measured measured = saved ? load(options, command) : measure(options.run);
  if (!measured.error.empty()) std::cerr << "torchtap: " << measured.error << '\n';
  for (const std::string& file : files) report::save(measured.results, file);
  show(measured.results, options);
  if (!measured.error.empty()) throw CLI::RuntimeError(2);
  if (measured.signal == 0) return;
  std::cerr << "torchtap: interrupted; the report is of the repeats until there.\n";
  std::cout << std::flush;
  end_by(measured.signal);
}

/// A file that ends in .html.
CLI::Validator page() {
  return CLI::Validator(
      [](std::string& path) {
        const std::string extension = std::filesystem::path(path).extension().string();
        return extension == ".html" || extension == ".HTML" ? "" : "\"" + path + "\" should end in .html";
      },
      "FILE.html");
}

void add_options_of_runs(CLI::App& command, MeasureOptions& run) {
  add_input_options(command, run.inputs, /*one_call=*/true);
  command.add_option("--repeat", run.repeat, "How many times to run the model")
      ->transform(whole_number(1))
      ->capture_default_str();
  command.add_option("--warmup", run.warmup, "How many times to run it before, without counting these")
      ->transform(whole_number(0))
      ->capture_default_str();
  command.add_flag("--backward", run.backward,
                   "Run the model with gradients, and the backward of the sum of its outputs");
  command.add_flag("--train", run.train, "Run the model in training mode; otherwise in evaluation mode");
  command.add_option("--method", run.method, "The method to call")->capture_default_str();
  add_library_option(command);
  command.add_option("--device", run.device, "Where the model runs: cpu, cuda, cuda:1")
      ->capture_default_str();
  command.add_flag("--no-memory", run.no_memory, "Do not watch LibTorch's allocations");
  command.add_flag("--no-work", run.no_work, "Do not count multiply-accumulates and bytes");
  command
      .add_option("--non-finite", run.non_finite,
                  "NaN and Inf in outputs of operations: note where they come from, raise an error there, or "
                  "ignore them")
      ->check(CLI::IsMember({"note", "raise", "ignore"}))
      ->capture_default_str();
}

}  // namespace

void add_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command =
      app.add_subcommand("report", "Say what each module is and costs: time, memory, MACs, NaN");
  command->footer(report_examples());
  command
      ->add_option(
          "source", options->run.model,
          "A file of torch.jit.script or torch.jit.trace, a tapped package (.pt2), or a saved report (.json)")
      ->required()
      ->check(CLI::ExistingPath);
  add_options_of_runs(*command, options->run);
  command
      ->add_option("-o,--save", options->save,
                   "Files for the report; the extension says which kind: .json, .csv or .html")
      ->delimiter(',')
      ->check(place());
  command->add_option("--html", options->html, "A page for a browser; the same as --save of a .html file")
      ->check(page());
  add_overwrite(*command, options->overwrite);
  command
      ->add_option("--depth", options->depth,
                   "Leave modules out of the table that are nested deeper than this")
      ->transform(whole_number(0));
  auto* json = command->add_flag("--json", options->json, "Write JSON");
  command->add_flag("--csv", options->csv, "Write comma-separated values, a row for each module")
      ->excludes(json);
  command->callback([options, command] { report_or_show(*options, *command); });
}

}  // namespace torchtap::tools
