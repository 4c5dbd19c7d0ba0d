#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/rules/rules.hpp>

#include "commands.hpp"
#include "drift_check.hpp"
#include "files/json.hpp"
#include "recordings/recorded_facts.hpp"
#include "recordings/recordings.hpp"
#include "terminal/message_text.hpp"
#include "terminal/outcome.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

constexpr char kCheckExamples[] = R"(
Judges the tensors of a recording by the rules that the report, the explorer and the monitor judge by, too: values that
are not finite, dead ReLUs, saturated sigmoids, gradients that vanish or explode, scales that stick out, modules that
never ran. A recording of statistics is judged by what its reductions tell: best are moments, count, log_histogram, min
and max. Of samples everything is computed. A file of tensors, such as a state_dict, is judged as parameters, each by itself.

--rules FILE turns rules on and off and sets thresholds, for all modules or for those whose paths match:
  dead_relu.zeros = 0.999
  [layer4.*  head]
  dead_relu = off
The guide has all rules: views/rules/README.md.

--against REFERENCE says, too, which tensors are distributed otherwise than in the reference. Both are recordings of the
reduction blocks: torchtap record … --reduce blocks, or --learn.

Examples:
  torchtap check stats/
  torchtap check stats/ --rules rules.txt
  torchtap check tonight/ --against reference/ --json

Exit status: 0 if nothing was found, 1 if there are findings, 2 if it could not be checked; with --against, 3 if nothing
was found but the distribution of some tensor could not be judged, which is said first.)";

struct CheckOptions {
  std::string recording;
  std::string rules;
  std::string reference;
  bool json = false;
};

/// The findings, and the amount that was checked.
struct Checked {
  std::vector<rules::Finding> findings;
  std::vector<std::string> notes;  // which rules could not be judged by what was recorded
  Outcome outcome;                 // whether anything was found, and which tensors were not judged for drift
  std::int64_t modules = 0;
};

Checked judge(const CheckOptions& options, const rules::Rules& rules) {
  Layers layers = open_layers(options.recording);
  const bool tensors = layers.is_file() && !has_statistics(layers);
  if (tensors) layers = by_name(std::move(layers));
  auto rows = recorded_tensors(layers, /*with_samples=*/true);
  for (auto& row : rows) {
    if (tensors) row.facts.tensor = rules::Tensor::parameter;
  }
  Checked checked;
  for (auto& found : findings_of(rows, rules))
    checked.findings.insert(checked.findings.end(), std::make_move_iterator(found.begin()),
                            std::make_move_iterator(found.end()));
  std::vector<rules::Facts> facts;
  for (const auto& row : rows) facts.push_back(row.facts);
  std::vector<std::string> relus;
  for (const auto& open : rules::undecided(facts, rules)) {
    if (open.rule == "dead_relu") {
      relus.push_back(open.path);
    } else {
      checked.notes.push_back("\"" + open.path + "\": whether " + open.rule +
                              " holds is not known: " + open.sentence + ".");
    }
  }
  if (const std::size_t count = relus.size(); count != 0) {
    relus.resize(std::min<std::size_t>(count, 12));
    checked.notes.push_back(
        "dead_relu.channels is not judged of " + base::quoted(relus) +
        (count > 12 ? " (and " + std::to_string(count - 12) + " more)" : "") +
        ", where half of the values are zero: samples, or log_histogram by channels, would tell.");
  }
  std::set<std::string> paths;
  for (const Layer& layer : layers.all) paths.insert(layer.path);
  checked.modules = static_cast<std::int64_t>(paths.size());
  if (!checked.findings.empty()) checked.outcome.differ();
  if (options.reference.empty()) return checked;
  DriftVerdict drift = judge_drift(options.recording, options.reference, rules);
  TORCH_CHECK_VALUE(drift.compared > 0, "\"", options.recording, "\" and \"", options.reference,
                    "\" have no tensor in common that can be compared; record the same modules with --reduce "
                    "blocks, or with --learn.");
  if (!drift.findings.empty()) checked.outcome.differ();
  std::move(drift.findings.begin(), drift.findings.end(), std::back_inserter(checked.findings));
  for (auto& what : drift.not_judged) checked.outcome.leave_out(std::move(what));
  return checked;
}

std::string tensor_text(const rules::Finding& finding) {
  const std::string name(rules::name_of(finding.tensor));
  return finding.slot == 0 ? name : name + "[" + std::to_string(finding.slot) + "]";
}

void print_findings(const Checked& checked, const CheckOptions& options) {
  using Align = Table::Align;
  Table table({{"module", Align::left, Table::kAlways, 20, true},
               {"tensor", Align::left, 60},
               {"rule", Align::left},
               {"value", Align::right, 70},
               {"limit", Align::right, 65},
               {"", Align::left, 80, 20}});
  for (const auto& finding : checked.findings) {
    table.add({shown_path(finding.path), tensor_text(finding), finding.rule, to_text(finding.value, 3),
               to_text(finding.limit, 3), finding.sentence});
  }
  const auto& not_judged = checked.outcome.gaps();
  if (!not_judged.empty()) print_wrapped(std::cout, c10::str("Not all was judged:"));
  for (const auto& what : not_judged) print_wrapped(std::cout, what);
  if (!checked.findings.empty()) table.print(std::cout);
  for (const auto& note : checked.notes) print_wrapped(std::cout, note);
  const auto count = static_cast<std::int64_t>(checked.findings.size());
  std::string line = count != 0           ? views::text::counted(count, "finding")
                     : not_judged.empty() ? "nothing found"
                                          : "nothing found in what was judged,";
  line += " in " + views::text::counted(checked.modules, "module");
  if (!options.reference.empty()) line += "; reference: " + options.reference;
  if (!options.rules.empty()) line += "; rules: " + options.rules;
  print_wrapped(std::cout, line);
}

void print_findings_json(const Checked& checked, const CheckOptions& options) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json findings = Json::array();
  for (const auto& finding : checked.findings) {
    findings.push_back({{"rule", finding.rule},
                        {"path", finding.path},
                        {"type", finding.type},
                        {"tensor", rules::name_of(finding.tensor)},
                        {"slot", finding.slot},
                        {"value", finding.value},
                        {"limit", finding.limit},
                        {"sentence", finding.sentence}});
  }
  print(Json{{"path", options.recording},
             {"reference", or_null(options.reference)},
             {"rules", or_null(options.rules)},
             {"modules", checked.modules},
             {"agree", checked.outcome.agree()},
             {"gaps", checked.outcome.gaps()},
             {"findings", std::move(findings)},
             {"notes", checked.notes}});
}

}  // namespace

void add_check(CLI::App& app) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Say what rules find in a recording");
  command->footer(kCheckExamples);
  command
      ->add_option("recording", options->recording, "A recording, a file of tensors, or a folder from Python")
      ->required()
      ->check(CLI::ExistingPath);
  command->add_option("--rules", options->rules, "A file of rules")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  command->add_option("--against", options->reference, "A reference: a recording of blocks")
      ->type_name("DIR")
      ->check(CLI::ExistingPath);
  command->add_flag("--json", options->json, "Write JSON");
  command->callback([options] {
    const rules::Rules rules = options->rules.empty() ? rules::Rules() : rules::Rules::load(options->rules);
    const Checked checked = judge(*options, rules);
    options->json ? print_findings_json(checked, *options) : print_findings(checked, *options);
    if (const int status = checked.outcome.status()) throw CLI::RuntimeError(status);
  });
}

}  // namespace torchtap::tools
