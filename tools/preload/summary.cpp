#include "summary.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/staging.hpp>

namespace torchtap::preload {
namespace {

namespace fs = std::filesystem;

std::string counted(std::int64_t number, const std::string& word) {
  return std::to_string(number) + " " + word + (number == 1 ? "" : "s");
}

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

std::string clock_time(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[16];
  std::strftime(text, sizeof(text), "%H:%M:%S", &parts);
  return text;
}

bool runs(const Report& report) {
  return !report.ended && (::kill(static_cast<pid_t>(report.process), 0) == 0 || errno == EPERM);
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
#ifdef RENAME_EXCHANGE
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    storage::detail::remove_folder(from, storage::detail::is_recording_file);
    return true;
  }
#endif
  return false;
}

struct Seen {
  bool uses_torch = false, uses_script = false;
  std::set<std::string> ran_types, ran_paths, on_stack, compiled_in;

  explicit Seen(const std::vector<Report>& reports) {
    for (const auto& report : reports) {
      uses_torch = uses_torch || report.uses_torch;
      uses_script = uses_script || report.uses_script;
      ran_types.insert(report.ran_types.begin(), report.ran_types.end());
      ran_paths.insert(report.ran_paths.begin(), report.ran_paths.end());
      on_stack.insert(report.on_stack.begin(), report.on_stack.end());
      compiled_in.insert(report.compiled_in.begin(), report.compiled_in.end());
    }
  }
};

std::vector<std::string> nearest(const std::string& wanted, const std::set<std::string>& names) {
  return core::detail::nearest(wanted, std::vector<std::string>(names.begin(), names.end()));
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
    return "the nearest are " + core::detail::quoted(nearest(which.names.front(), seen.ran_paths));
  }
  if (!which.types.empty()) return "the nearest are " + listed(nearest(which.types, seen.ran_types));
  return "there were " + listed(seen.ran_types);
}

/// "3 samples of 2 modules"
std::string contents(const Report& report, const Config& config) {
  if (config.mode == "trace") return counted(report.samples, "tensor");
  if (config.mode == "report") return counted(report.samples, "repeat");
  if (config.mode == "explore")
    return counted(report.samples, "step") + " of " + counted(report.modules, "model");
  return counted(report.samples, "sample") + " of " + counted(report.modules, "module");
}

/// The reasons why there is no recording.
std::vector<std::string> reasons(const std::vector<Report>& reports, const Config& config,
                                 const Ended& program) {
  const std::string nothing = "nothing was recorded: ";
  if (reports.empty()) {
    return {nothing +
            "torchtap could not be loaded into the program: it is statically linked, or runs with "
            "the privileges of another user."};
  }
  const Seen seen(reports);
  std::vector<std::string> lines;
  if ((config.mode == "report" || config.mode == "explore") && !seen.ran_types.empty()) {
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
  if (seen.uses_script && config.mode == "record") {
    lines.push_back(nothing + "the program runs TorchScript; `torchtap record MODEL` records that.");
  }
  if (lines.empty() && !seen.compiled_in.empty()) {
    lines.push_back(nothing + "the program's modules (" + listed(seen.compiled_in) +
                    ") are compiled into it and called none of LibTorch's; build it with "
                    "torchtap::transparent to record it.");
  }
  if (lines.empty() && seen.uses_torch) {
    lines.push_back(nothing + "the program uses LibTorch, but called none of its modules" +
                    (WIFSIGNALED(program.status) ? " before it was killed." : "."));
  }
  if (lines.empty()) lines.push_back(nothing + "the program does not use LibTorch as a shared library.");
  return lines;
}

}  // namespace

void settle(std::vector<Report>& reports, const Config& config) {
  if (config.save.empty()) return;
  Report* only = nullptr;
  for (auto& report : reports) {
    if (!report.attached) continue;
    if (only != nullptr || report.directory.empty() || report.directory == config.save || runs(report))
      return;
    only = &report;
  }
  if (only != nullptr && move_recording(only->directory, config.save, config.overwrite)) {
    only->directory = config.save;
  }
}

std::vector<std::string> summarize(const std::vector<Report>& reports, const Config& config,
                                   const std::string& shown, const Ended& program) {
  const auto show = [&](const std::string& directory) {
    return directory.compare(0, config.save.size(), config.save) == 0
               ? shown + directory.substr(config.save.size())
               : directory;
  };
  std::vector<std::string> lines, directories;
  bool any = false;
  for (const auto& report : reports) {
    const bool itself = report.process == program.process;
    const std::string who = "process " + std::to_string(report.process) + " (" + report.program + ")";
    for (const auto& note : report.notes) lines.push_back(itself ? note : who + ": " + note);
    if (!report.attached) continue;
    any = true;
    if (!report.directory.empty()) directories.push_back(show(report.directory));
    if (!report.stream.empty()) lines.push_back(who + " published as \"" + report.stream + "\".");
    if (config.save.empty()) continue;  // nothing was to be saved
    if (report.ended) {
      if (report.directory.empty()) continue;  // a note gives the reason
      if (!itself || report.directory != config.save) {
        lines.push_back(who +
                        (config.mode == "trace"    ? " logged "
                         : config.mode == "report" ? " measured "
                                                   : " recorded ") +
                        contents(report, config) + ": " + show(report.directory));
      }
      if (report.samples == 0) {
        lines.push_back(show(report.directory) + " has no samples: modules were called, but " +
                        (config.what.compare(0, 4, "grad") == 0 ? "no gradient reached them."
                                                                : "none of them returned."));
      }
      continue;
    }
    if (!itself && runs(report)) {
      lines.push_back(who +
                      (config.mode == "explore"
                           ? " is still running and goes on with its run: "
                           : " is still running and saves its recording when it ends: ") +
                      show(report.directory.empty() ? config.save + "-" + std::to_string(report.process)
                                                    : report.directory));
      continue;
    }
    std::string how = itself ? "the program ended" : who + " ended";
    if (itself && WIFSIGNALED(program.status)) {
      const int number = WTERMSIG(program.status);
      how = "the program was killed by signal " + std::to_string(number) + " (" + ::strsignal(number) + ")";
    }
    if (config.mode == "explore") {
      lines.push_back(how + ": " + show(report.directory) + " has the run as far as it was written.");
      continue;
    }
    lines.push_back(
        how + " and could not save what it had recorded: " +
        (report.directory.empty()
             ? std::string("it is lost.") +
                   (config.mode == "trace" ? "" : " --every SECONDS saves it at intervals.")
             : show(report.directory) + (config.mode == "report" ? " has the report" : " has the recording") +
                   " as of " + clock_time(report.saved_at) + ", " + contents(report, config) + "."));
  }
  if (directories.size() > 1 && config.mode == "record") {
    std::string all;
    for (const auto& directory : directories) all += " " + directory;
    lines.push_back("recordings of the same modules can be merged: torchtap merge" + all + " --save " +
                    shown + "-all");
  }
  if (!any) {
    const auto why = reasons(reports, config, program);
    lines.insert(lines.end(), why.begin(), why.end());
  }
  return lines;
}

}  // namespace torchtap::preload
