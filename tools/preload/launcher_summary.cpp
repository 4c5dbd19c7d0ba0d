#include "launcher_summary.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <torchtap/base/error.hpp>
#include <torchtap/base/staging.hpp>
#include <torchtap/base/system.hpp>
#include <torchtap/storage/extend/recording_files.hpp>
#include <torchtap/views/monitor/incident.hpp>
#include <torchtap/views/text/units.hpp>

#include "executable.hpp"
#include "launcher_saves.hpp"
#include "program_libraries.hpp"
#include "terminal/message.hpp"
#include "told_alarms.hpp"

namespace torchtap::tools::preload {
namespace {

namespace fs = std::filesystem;
using views::text::counted;

/// "Conv2d, Linear and 3 more"
std::string listed(const std::vector<std::string>& names, std::size_t most = 5) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < most; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

std::string listed(const std::set<std::string>& names) {
  return listed(std::vector<std::string>(names.begin(), names.end()));
}

bool move_recording(const std::string& from, const std::string& to, bool overwrite) {
  std::error_code error;
  if (!fs::exists(to, error) || fs::is_empty(to, error)) {
    fs::rename(from, to, error);
    return !error;
  }
  if (!overwrite) return false;
  if (!fs::is_directory(to, error)) {  // a report
    fs::rename(from, to, error);
    return !error;
  }
  if (base::rename(from, to, base::Rename::exchange) != 0) return false;
  base::remove_folder(from, storage::extend::is_recording_file);
  return true;
}

struct Seen {
  bool uses_torch = false, uses_python = false;
  std::set<std::string> ran_types, ran_paths, on_stack, compiled_in;

  explicit Seen(const std::vector<Report>& reports) {
    for (const auto& report : reports) {
      uses_torch = uses_torch || report.uses_torch;
      uses_python = uses_python || (report.uses_torch && report.uses_python);
      ran_types.insert(report.ran_types.begin(), report.ran_types.end());
      ran_paths.insert(report.ran_paths.begin(), report.ran_paths.end());
      on_stack.insert(report.on_stack.begin(), report.on_stack.end());
      compiled_in.insert(report.compiled_in.begin(), report.compiled_in.end());
    }
  }
};

std::vector<std::string> nearest(const std::string& wanted, const std::set<std::string>& names) {
  return base::nearest(wanted, std::vector<std::string>(names.begin(), names.end()));
}

/// "is called 'fc*' and has a type like 'Linear'".
std::string asked_for(const tools::Which& which) {
  std::string text;
  const auto ask = [&](const std::string& what, const std::string& pattern) {
    if (!pattern.empty()) text += (text.empty() ? "" : " and ") + what + " '" + pattern + "'";
  };
  const auto joined = [](const std::vector<std::string>& globs) {
    std::string list;
    for (const auto& glob : globs) list += (list.empty() ? "" : ",") + glob;
    return list;
  };
  ask("is called", joined(which.names));
  ask("has a type like", which.types);
  ask("is not called", joined(which.not_names));
  ask("has no type like", which.not_types);
  return text.empty() ? "could be recorded" : text;
}

std::string nearest_to(const tools::Which& which, const Seen& seen) {
  if (!which.names.empty()) {
    return "the nearest are " + base::quoted(nearest(which.names.front(), seen.ran_paths));
  }
  if (!which.types.empty()) return "the nearest are " + listed(nearest(which.types, seen.ran_types));
  return "there were " + listed(seen.ran_types);
}

/// "3 samples of 2 modules"
std::string contents(const Report& report, const Config& config) {
  if (config.mode == "trace") return counted(report.samples, "tensor");
  if (config.mode == "report") return counted(report.samples, "repeat");
  if (config.mode == "fingerprint") return "fingerprints of " + counted(report.samples, "tensor");
  if (config.mode == "explore")
    return counted(report.samples, "step") + " of " + counted(report.modules, "model");
  return counted(report.samples, "sample") + " of " + counted(report.modules, "module");
}

/// "was killed by signal 9 (Killed)"; empty if it was not.
std::string killed(const Ended& program) {
  if (!WIFSIGNALED(program.status)) return {};
  const int number = WTERMSIG(program.status);
  return "was killed by signal " + std::to_string(number) + " (" + ::strsignal(number) + ")";
}

/// Why torchtap was loaded into no process.
std::string not_loaded(const Ended& program, const std::string& file) {
  const std::string obstacle = obstacle_of(file);
  if (!obstacle.empty()) return "torchtap could not be loaded into the program: " + obstacle + ".";
  if (const std::string how = killed(program); !how.empty()) {
    return "the program " + how + " before torchtap was loaded into it.";
  }
  return "torchtap could not be loaded into the program; it, or the dynamic loader, may say above why.";
}

/// A process that did not end by `exit`, and may have run another program, without torchtap; null if there is
/// none.
const Report* may_have_become_another(const std::vector<Report>& reports, const Ended& program) {
  for (const auto& report : reports) {
    if (report.ended || !report.gone || report.became_another) continue;
    if (!report.is_program) return &report;
    if (!WIFSIGNALED(program.status) && program.name != report.program.substr(0, program.name.size()))
      return &report;
  }
  return nullptr;
}

/// How much ran after what was handed over last.
void tell_missing(std::vector<std::string>& lines, const std::string& how, const Report& report,
                  const Config& config) {
  if (report.missing <= 0 || config.mode == "trace" || config.mode == "fingerprint" ||
      config.mode == "explore")
    return;
  const std::string what = config.mode == "record" ? "call" : config.mode == "report" ? "repeat" : "forward";
  lines.push_back(how + ", and its last " + counted(report.missing, what) +
                  (config.mode == "record" ? " of modules" : "") + (report.missing == 1 ? " is" : " are") +
                  (config.mode == "monitor" ? " not judged." : " not in it."));
}

/// A monitor's findings in a process, and the files that the process left if it was killed.
void tell_alarms(std::vector<std::string>& lines, const Report& report, const std::string& who,
                 const std::string& shown, std::int64_t from) {
  constexpr std::size_t kMost = 20;
  const ToldAlarms told = alarms_told(report.directory, from, shown);
  const std::size_t number = told.raised.size();
  const auto written = static_cast<std::int64_t>(number);
  const std::int64_t raised = std::max(written, report.alarms);  // a killed process reports no number
  std::string words = raised == 0 ? "no alarms" : counted(raised, "alarm") + ": " + shown + "/alarms.jsonl";
  if (written < raised) {
    words = counted(raised, "alarm") + ", of which " + std::to_string(raised - written) +
            " could not be written to " + shown + "/alarms.jsonl";
  }
  lines.push_back(who + "watched " + counted(report.modules, "model") + ", " + words + ".");
  for (std::size_t i = 0; i < number && i < kMost; ++i) lines.push_back(who + told.raised[i]);
  if (number > kMost) lines.push_back(who + "and " + std::to_string(number - kMost) + " more.");
  for (const auto& note : told.notes) lines.push_back(who + note);
  for (std::string incident : report.incidents) {
    if (incident.rfind(report.directory, 0) == 0) incident = shown + incident.substr(report.directory.size());
    lines.push_back(who + "the incident of a killed process: " + incident);
  }
}

/// Only the waiter was in the process, because of another LibTorch.
bool ran_without_agent(const Report& report) {
  return !report.other_torch.empty() && !report.uses_torch;
}

/// The reasons why there is no recording.
std::vector<std::string> reasons(const std::vector<Report>& reports, const Config& config,
                                 const Ended& program, const std::string& file) {
  const std::string nothing = config.mode == "monitor" ? "nothing was watched: " : "nothing was recorded: ";
  if (reports.empty()) return {nothing + not_loaded(program, file)};
  const Seen seen(reports);
  std::vector<std::string> lines;
  for (const Report& report : reports) {
    if (!report.obstacle.empty())
      return {nothing + "torchtap could not be loaded into the program: " + report.obstacle + "."};
    if (report.other_torch.empty()) continue;
    return {nothing + "the program loaded a second LibTorch, " + with_version(report.other_torch) +
            ", beside " + with_version(own_torch()) +
            ", which torchtap was built for; it runs only without torchtap."};
  }
  const bool of_models = config.mode != "record" && config.mode != "trace" && config.mode != "fingerprint";
  if (of_models && !seen.ran_types.empty()) {
    lines.push_back(
        nothing + "no module that ran (" + listed(seen.ran_types) +
        ") belongs to a model that the program set to train or eval, or asked for its parameters.");
  } else if (!seen.ran_types.empty()) {
    lines.push_back(nothing + "no module that ran " + asked_for(config.which) + "; " +
                    nearest_to(config.which, seen) + ".");
  }
  if (!seen.on_stack.empty()) {
    lines.push_back(
        nothing + "the modules that were called (" + listed(seen.on_stack) +
        ") are plain variables, which may be destroyed at any moment; only modules in a holder, like "
        "torch::nn::Linear, or a shared pointer can be recorded.");
  }
  if (!lines.empty()) return lines;
  const std::string how = killed(program);
  const Report* const other = may_have_become_another(reports, program);
  const bool itself = other != nullptr && other->is_program;
  if (other != nullptr && (itself || !seen.uses_torch)) {
    const std::string who = "process " + std::to_string(other->process) + " (" + other->program + ")";
    return {
        nothing +
        (itself ? who + " ran another program, into which torchtap was not loaded: "
                : "no process used LibTorch as a shared library. If " + who +
                      " ran another program, torchtap was not loaded into that: ") +
        "LD_PRELOAD was taken from it, as env -i, env LD_PRELOAD=… and sudo do, or it is statically linked. "
        "Put what changes the environment in front: env … torchtap preload … -- PROGRAM; libraries in "
        "LD_PRELOAD are kept."};
  }
  if (!seen.compiled_in.empty()) {
    const std::string modules = listed(seen.compiled_in);
    return {nothing +
            (how.empty()
                 ? "the program's modules (" + modules +
                       ") are compiled into it and called none of LibTorch's; build it with "
                       "torchtap::transparent to record it."
                 : "the program " + how + " before any module that can be seen was called; its own (" +
                       modules +
                       ") are compiled into it, and are seen if it is built with torchtap::transparent.")};
  }
  if (!how.empty()) return {nothing + "the program " + how + " before there was anything to record."};
  if (!seen.uses_torch) return {nothing + "the program does not use LibTorch as a shared library."};
  return {nothing + "the program uses LibTorch, but called none of its modules" +
          (seen.uses_python
               ? ": torch.nn of Python is written in Python; what Python programs run as TorchScript is "
                 "seen."
               : ".")};
}

}  // namespace

void settle(std::vector<Report>& reports, const Config& config) {
  if (config.save.empty() || config.mode == "monitor" || Saver::publishes(config)) return;
  Report* only = nullptr;
  for (auto& report : reports) {
    if (!report.attached) continue;
    if (only != nullptr || report.directory.empty() || report.directory == config.save || !report.gone)
      return;
    only = &report;
  }
  if (only != nullptr && move_recording(only->directory, config.save, config.overwrite)) {
    only->directory = config.save;
  }
}

views::monitor::Left left_by(const Report& report, const Ended& program) {
  if (!report.is_program || report.became_another) return views::monitor::Left::suspicious;
  constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGKILL, SIGSYS, SIGTRAP};
  const bool crashed =
      WIFSIGNALED(program.status) &&
      std::find(std::begin(kCrashes), std::end(kCrashes), WTERMSIG(program.status)) != std::end(kCrashes);
  return crashed ? views::monitor::Left::any : views::monitor::Left::none;
}

std::vector<std::string> summarize(const std::vector<Report>& reports, const Config& config,
                                   const std::string& shown, const Ended& program, const std::string& file) {
  const auto show = [&](const std::string& directory) {
    return directory.compare(0, config.save.size(), config.save) == 0
               ? shown + directory.substr(config.save.size())
               : directory;
  };
  std::vector<std::string> lines, directories;
  bool any = false;
  for (const auto& report : reports) {
    const bool itself = report.is_program;
    const std::string who = "process " + std::to_string(report.process) + " (" + report.program + ")";
    for (const auto& note : report.notes) lines.push_back(itself ? note : who + ": " + note);
    if (ran_without_agent(report)) {
      lines.push_back((itself ? "nothing was recorded, and the program " : who + " ") +
                      ran_without(report.other_torch));
      any = true;
    }
    if (!report.attached) continue;
    any = true;
    if (!report.directory.empty()) directories.push_back(show(report.directory));
    if (!report.stream.empty()) lines.push_back(who + " published as \"" + report.stream + "\".");
    if (config.save.empty()) continue;  // nothing was to be saved
    const bool still_runs = !report.gone;
    const bool was_killed = itself && !report.became_another && WIFSIGNALED(program.status);
    const std::string how =
        (itself ? "the program " : who + " ") + (was_killed              ? killed(program)
                                                 : report.became_another ? "became another program (exec)"
                                                                         : "ended");
    if (config.mode == "monitor") {
      if (report.modules == 0) continue;  // a note gives the reason
      const std::string begin = itself ? "" : who + ": ";
      if (still_runs) lines.push_back(who + " is still running and is still watched.");
      tell_alarms(lines, report, begin, show(report.directory), itself ? config.alarms_before : 0);
      if (!still_runs && !report.ended) tell_missing(lines, how, report, config);
      continue;
    }
    if (still_runs) {
      lines.push_back(who +
                      (config.mode == "explore"
                           ? " is still running and goes on with its run: "
                           : " is still running, and what it records is saved when it ends: ") +
                      show(report.directory));
      continue;
    }
    if (!report.ended && !Saver::publishes(config)) {
      lines.push_back(how + ": " + show(report.directory.empty() ? config.save : report.directory) + " has " +
                      (config.mode == "explore" ? "the run" : "the fingerprints") +
                      " as far as it was written.");
      continue;
    }
    if (report.directory.empty()) {
      if (!report.lost)
        lines.push_back(how + (config.mode == "trace"
                                   ? " before its pass was over, which is lost."
                                   : " before it had handed over what it recorded, which is lost."));
      continue;
    }
    if (config.mode == "learn") {
      lines.push_back((itself ? "" : who + ": ") + "learned a reference of " +
                      counted(report.modules, "model") + ": " + show(report.directory));
      tell_missing(lines, how, report, config);
      continue;
    }
    const bool as_asked = itself && report.directory == config.save;
    if (report.became_another) lines.push_back(how + "; what it had recorded before:");
    if (!as_asked || report.samples != 0) {
      lines.push_back((as_asked ? "" : who + " ") +
                      (config.mode == "trace"         ? "logged "
                       : config.mode == "report"      ? "measured "
                       : config.mode == "fingerprint" ? "wrote "
                                                      : "recorded ") +
                      contents(report, config) + ": " + show(report.directory));
    }
    if (report.samples == 0 && !report.ended) {
      lines.push_back(show(report.directory) + " has no samples: the process ended before its first one.");
    } else if (report.samples == 0) {
      lines.push_back(show(report.directory) + " has no samples: modules were called, but " +
                      (config.what.compare(0, 4, "grad") == 0
                           ? "no gradient reached them."
                           : "none of them returned what could be recorded."));
    }
    tell_missing(lines, how, report, config);
  }
  if (directories.size() > 1 && config.mode == "record") {
    std::string all;
    for (const auto& directory : directories) all += " " + directory;
    lines.push_back("recordings of the same modules can be merged: torchtap merge" + all + " --save " +
                    shown + "-all");
  }
  if (!any) {
    const auto why = reasons(reports, config, program, file);
    lines.insert(lines.end(), why.begin(), why.end());
  }
  return lines;
}

}  // namespace torchtap::tools::preload
