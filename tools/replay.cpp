#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/views/monitor/incident.hpp>
#include <torchtap/views/report/report.hpp>

#include "commands.hpp"
#include "files/json.hpp"
#include "models/model.hpp"
#include "options/option_checks.hpp"
#include "terminal/message_text.hpp"
#include "terminal/table.hpp"

namespace torchtap::tools {
namespace {

namespace monitor = views::monitor;
using monitor::Replayed;

constexpr const char* kReplayExamples = R"(
Runs the forwards of an incident again, in order, each with its recorded random state, mode and number of threads, and
says whether the outputs have the same bits. The first one that has values that are not finite is run once more, and the
first operation that made them is named.

Of a folder of incidents, lists them, and makes an incident of each ring that a killed process left there.

The model is a TorchScript file, the one that ran or a copy. Models of C++ are replayed by
torchtap::views::monitor::replay. Numbers and texts among the arguments of a forward are not recorded; they have their
defaults. Forwards that change the model, as in training, have the same bits only if those before them are replayed, too,
or for the forward whose parameters the incident has; it says so where they were read later.

Examples:
  torchtap replay incidents/
  torchtap replay incidents/20261123T160502-0008-nonfinite model.pt
  torchtap replay incidents/20261123T160502-0008-nonfinite model.pt --from 90311 --save last/
  torchtap replay incidents/20261123T160502-0008-nonfinite model.pt --rtol 1e-5          # another processor

Exit status: 0 if all outputs have the same bits (or are within --rtol), 1 if not, 2 if it cannot be replayed.)";

struct ReplayCommand {
  std::string incident, model, save;
  std::string method = "forward";
  std::int64_t from = 0;
  std::optional<double> rtol;
  bool overwrite = false;
  bool json = false;
};

/// The first finding of the search for values that are not finite.
struct FirstNonFinite {
  std::string module, function, role;
};

std::string values_to_text(std::int64_t nan, std::int64_t inf) {
  std::string text;
  if (nan != 0) text = std::to_string(nan) + " NaN";
  if (inf != 0) text += (text.empty() ? "" : ", ") + std::to_string(inf) + " Inf";
  return text.empty() ? "finite" : text;
}

/// Whether the replay gave what was recorded; nothing if there is nothing to compare.
std::optional<bool> as_recorded(const Replayed& one, const ReplayCommand& command) {
  if (!one.returned) return std::nullopt;
  return one.same_bits || (command.rtol.has_value() && one.difference <= *command.rtol);
}

std::string same_to_text(const Replayed& one, const ReplayCommand& command) {
  const auto same = as_recorded(one, command);
  if (!same.has_value()) return "-";
  if (one.same_bits) return "yes";
  std::ostringstream text;
  text << (*same ? "no, within " : "no");
  if (*same) text << *command.rtol;
  return text.str();
}

/// Runs a forward once more, and searches it.
std::optional<FirstNonFinite> search_forward(const ReplayCommand& command, torch::jit::Module& model,
                                             std::int64_t forward) {
  using views::report::Role;
  views::report::Report report(selectors::modules(model, command.method),
                               views::report::ReportOptions().memory(false).work(false));
  monitor::ReplayOptions options;
  options.from = forward;
  options.to = forward;
  options.around_last = [&](const std::function<void()>& run) {
    const auto repeat = report.record();
    run();
  };
  monitor::replay(command.incident, model, options, command.method);
  for (const auto& finding : report.results().findings) {
    if (finding.role == Role::producer) return FirstNonFinite{finding.module, finding.function, "producer"};
    if (finding.role == Role::source) return FirstNonFinite{finding.module, finding.function, "source"};
  }
  return std::nullopt;
}

/// Runs the last forward once more and saves the outputs of all modules.
void save_last(const ReplayCommand& command, torch::jit::Module& model, std::int64_t last) {
  recorders::ForwardOutput recorder;
  recorder.attach(model, {}, command.method);
  monitor::ReplayOptions options;
  options.from = last;
  monitor::replay(command.incident, model, options, command.method);
  recorder.save(command.save, storage::SaveOptions().mkdir(true).overwrite(command.overwrite));
}

std::string sentence_of(const FirstNonFinite& first) {
  const std::string where = first.module.empty() ? "the model itself" : first.module;
  return first.role == "producer" ? where + ", " + first.function + ", of finite inputs (producer)"
                                  : where + ", " + first.function + " (source)";
}

void print_replay(const std::vector<Replayed>& all, const ReplayCommand& command,
                  const std::optional<FirstNonFinite>& first) {
  using Align = Table::Align;
  Table table({{"forward", Align::right},
               {"input", Align::left, 30, 8},
               {"output", Align::left, 20, 8},
               {"recorded"},
               {"replayed", Align::left, 40, 8},
               {"same bits"}});
  for (const Replayed& one : all) {
    table.add({std::to_string(one.forward), one.inputs, one.outputs.empty() ? "-" : one.outputs,
               one.returned ? values_to_text(one.nan_recorded, one.inf_recorded) : "did not return",
               one.error.empty() ? values_to_text(one.nan, one.inf) : split(one.error).cause,
               same_to_text(one, command)});
  }
  table.print(std::cout);
  if (first.has_value()) print_wrapped(std::cout, "first non-finite: " + sentence_of(*first));
}

void print_replay_json(const std::vector<Replayed>& all, const ReplayCommand& command,
                       const std::vector<std::string>& notes, const std::optional<FirstNonFinite>& first,
                       bool same) {
  Json forwards = Json::array();
  for (const Replayed& one : all) {
    const auto as = as_recorded(one, command);
    forwards.push_back({{"forward", one.forward},
                        {"inputs", one.inputs},
                        {"outputs", one.outputs},
                        {"returned", one.returned},
                        {"nan_recorded", one.nan_recorded},
                        {"inf_recorded", one.inf_recorded},
                        {"nan", one.nan},
                        {"inf", one.inf},
                        {"same_bits", one.returned ? Json(one.same_bits) : Json(nullptr)},
                        {"difference", one.difference},
                        {"as_recorded", as.has_value() ? Json(*as) : Json(nullptr)},
                        {"error", one.error.empty() ? Json(nullptr) : Json(one.error)}});
  }
  Json document{{"incident", command.incident}, {"model", command.model}, {"same", same}, {"notes", notes}};
  document["forwards"] = std::move(forwards);
  document["first_non_finite"] =
      first.has_value()
          ? Json{{"module", first->module}, {"function", first->function}, {"role", first->role}}
          : Json(nullptr);
  print(document);
}

/// Returns the exit status.
int replay_incident(const ReplayCommand& command) {
  TORCH_CHECK_VALUE(
      !command.model.empty(), "\"", command.incident,
      "\" is an incident; give the TorchScript file of its model, too: torchtap replay INCIDENT "
      "MODEL.pt. Models of C++ are replayed by torchtap::views::monitor::replay.");
  if (!command.save.empty()) check_free(command.save, command.overwrite);
  torch::jit::Module model = load_model(command.model);
  find_method(model, command.method);
  std::vector<std::string> notes;
  monitor::ReplayOptions options;
  options.from = command.from;
  options.note = [&](const std::string& note) { notes.push_back(note); };
  const std::vector<Replayed> all = monitor::replay(command.incident, model, options, command.method);
  const Replayed& last = all.back();
  std::optional<FirstNonFinite> first;
  const auto bad =
      std::find_if(all.begin(), all.end(), [](const auto& one) { return one.nan + one.inf != 0; });
  if (bad != all.end()) first = search_forward(command, model, bad->forward);
  if (!command.save.empty() && last.error.empty()) save_last(command, model, last.forward);
  bool same = true;
  for (const Replayed& one : all) same = same && as_recorded(one, command).value_or(true);
  for (const std::string& note : notes) std::cerr << "torchtap: " << printable(note) << ".\n";
  if (command.json) {
    print_replay_json(all, command, notes, first, same);
  } else {
    print_replay(all, command, first);
  }
  return same ? 0 : 1;
}

void list_incidents(const ReplayCommand& command) {
  TORCH_CHECK_VALUE(command.model.empty(), "\"", command.incident,
                    "\" is no incident; without a model, torchtap replay lists the incidents in it.");
  for (const std::string& made : monitor::recover_incidents(command.incident))
    std::cerr << "torchtap: made \"" << printable(made) << "\" of the ring that a killed process left.\n";
  const auto all = monitor::incidents_in(command.incident);
  if (command.json) {
    Json list = Json::array();
    for (const auto& one : all) {
      list.push_back({{"folder", one.folder},
                      {"created", one.created},
                      {"reason", one.reason},
                      {"model", one.model},
                      {"forwards", one.forwards},
                      {"inputs", one.inputs},
                      {"error", one.error.empty() ? Json(nullptr) : Json(one.error)}});
    }
    print(Json{{"incidents", std::move(list)}});
    return;
  }
  using Align = Table::Align;
  Table table({{"incident", Align::left, Table::kAlways, 14},
               {"created", Align::left, 20},
               {"reason", Align::left, 40},
               {"model", Align::left, 30, 6},
               {"forwards", Align::right},
               {"inputs"}});
  for (const auto& one : all) {
    if (!one.error.empty()) std::cerr << "torchtap: " << printable(one.error, true) << '\n';
    table.add({std::filesystem::path(one.folder).filename().string(), one.created,
               one.error.empty() ? one.reason : "cannot be read", one.model, std::to_string(one.forwards),
               one.inputs ? "kept" : "-"});
  }
  if (all.empty()) {
    std::cout << "no incidents\n";
  } else {
    table.print(std::cout);
  }
}

}  // namespace

void add_replay(CLI::App& app) {
  auto* command = app.add_subcommand("replay", "Run the forwards of an incident again, or list incidents");
  command->footer(kReplayExamples);
  auto options = std::make_shared<ReplayCommand>();
  command->add_option("INCIDENT", options->incident, "An incident, or a folder of incidents")->required();
  command->add_option("MODEL", options->model, "TorchScript file of the incident's model");
  command
      ->add_option("--from", options->from,
                   "Number of the first forward; by default the oldest in the incident")
      ->check(whole_number(0));
  command
      ->add_option("--save", options->save,
                   "Save the outputs of all modules in the last forward as a recording")
      ->check(place());
  add_overwrite(*command, options->overwrite);
  command
      ->add_option(
          "--rtol", options->rtol,
          "Accept outputs whose sum is as near to the recorded one, relative to the sum of their absolute "
          "values, and whose counts of NaN and infinities are those recorded")
      ->check(tolerance());
  command->add_option("--method", options->method, "The method that ran")->capture_default_str();
  add_library_option(*command);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options] {
    std::error_code error;
    TORCH_CHECK_VALUE(std::filesystem::is_directory(options->incident, error), "\"", options->incident,
                      "\" is no folder; an incident is one.");
    if (!monitor::is_incident(options->incident)) {
      list_incidents(*options);
    } else if (const int status = replay_incident(*options); status != 0) {
      throw CLI::RuntimeError(status);
    }
  });
}

}  // namespace torchtap::tools
