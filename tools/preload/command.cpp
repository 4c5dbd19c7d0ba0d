#include "command.hpp"

#include <CLI/CLI.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>

#include <torchtap/rules/rules.hpp>
#include <torchtap/views/monitor/reference.hpp>
#include <torchtap/views/report/save.hpp>
#include <torchtap/views/stream/publisher.hpp>

#include "config.hpp"
#include "executable.hpp"
#ifdef TORCHTAP_HAVE_EXPLORER
#include "explored_pages.hpp"
#endif
#include "installed.hpp"
#include "launcher_saves.hpp"
#include "launcher_summary.hpp"
#include "options/option_checks.hpp"
#include "options/recorder_options.hpp"
#include "options/selection_options.hpp"
#include "process_report.hpp"
#include "program_area.hpp"
#include "program_libraries.hpp"
#include "ranks.hpp"
#include "reservation.hpp"
#include "supervise.hpp"
#include "terminal/help.hpp"
#include "told_alarms.hpp"

namespace torchtap::tools::preload {
namespace {

namespace fs = std::filesystem;

constexpr char kExamples[] = R"(
Records inside a program without rebuilding it: any program that uses LibTorch as a shared library. Modules are named
by their paths once the program has asked a model for its parameters or modules or set it to train or eval; until then
by type and order of first use ("Linear#0"). Modules that a program creates anew in every forward share an entry if
they have the same type and shape and the same path, or are called after the same module. Modules defined in LibTorch's
headers (BatchNorm, InstanceNorm, Sequential) and the program's own types are compiled into the program and cannot be
seen; at the end torchtap names those it missed, or says why there is no recording.

TorchScript models are recorded too, as torchtap record does, with all modules that their code calls, whether the program
is C++ or Python (-- python3 script.py). Modules of torch.nn in Python are written in Python and not seen.

Ranks that mpirun, srun or torchrun started (mpirun -n 4 torchtap preload --save DIR ...) each save in a folder of their
own, DIR/rank0 and so on, or a file, NAME-rank0.json; torchtap merge DIR joins recordings. Other launchers that run at once
need places of their own: a second one with the same is an error before its program starts.

A program may load LibTorch as it begins or later, as Python does. One with another LibTorch than torchtap was built for
runs as without torchtap, which names both.

Each process makes its own recording: the program in DIR, processes that it starts in DIR-process2 and so on, whether
forked or running another program. A forked child has its own samples, not its parent's. At the end torchtap lists the
recordings; if only one process recorded anything, and not the program itself, its recording is in DIR.

Torchtap saves when a process has ended, however it did: by return, exit, _exit, abort, a signal, SIGKILL or an exec. Where
calls are so short that handing over each would take more than 1 % of the time, the last ones may be missing after another
end than exit; torchtap says how many. --interval SECONDS saves while the program runs, too.

--trace DIR logs every operation of one forward pass instead, as torchtap trace does: of TorchScript the first call of
a method; of a C++ model the pass from the first call of a module that can be seen. Its forward is compiled into the
program, so where it ends is taken from what follows: a backward; the model is set to train or eval or asked for its
parameters; its first module is called again after all others, with tensors that the pass did not compute; or the
program ends. Operations before the first module's call are not in it, and modules that cannot be seen are not named.
Each process logs one pass. --keep says which tensors are saved: all, none, or names and patterns ('conv*').

--report FILE measures the program's models instead, as torchtap report does: time, memory, work and gradients of each
module. FILE ends in .json, .csv or .html; further models are in FILE-2 and so on, further processes
in FILE-process2. A
repeat is a forward pass with the backwards that follow it, whose end is found as a trace's, except that a pass before
a backward ends by it. Models are known once the program has asked them for their parameters or modules or set them to
train or eval; a method of TorchScript is a model of its own. One thread is measured at a time.

--fingerprint FILE writes a fingerprint (800 bytes) of every parameter, buffer, input and output of the first forward
instead, by which torchtap compare finds where this program differs from another one. --forwards and --skip choose
other forwards, each module counting its own.

--explore shows the program's models in the browser while they train, as torchtap explore does with --save DIR
afterwards. The address of the page is printed when the first model runs; the page lives as long as the program. Models are known as
for --report, and a forward ends as a trace does, a training step's by its backward. The model's own call has the inputs
of its first module and no outputs. Each process has a page, and a directory, of its own: DIR-process2. The run is written as
it goes, so it survives any end of the program.

--monitor REFERENCE --save INCIDENTS watches the program's models instead: the rules of torchtap check, and drift of every
watched module against REFERENCE, which --learn DIR wrote before (or torchtap record --learn); --monitor "" is for rules
alone. INCIDENTS gets alarms.jsonl and, for each alarm, a folder with the model's last inputs, which torchtap replay runs
again. These inputs lie there readable, for the owner alone. --rules has thresholds; of the forwards as many are counted
as --cost allows; --metrics FILE is written for Prometheus at each window's end, --tensorboard DIR gets histograms. At the
end torchtap prints the alarms of this run; if a process crashed, it makes an incident of the inputs of its last forwards.
Models are known as for --report. Where a model's own forward is compiled into the program, its inputs are those of its
first module that can be seen. --learn DIR writes the reference of the first model into DIR, of further ones into DIR-2
and so on. Each process has folders of its own.

The program keeps its own output, exit status and signal handlers. Torchtap prints its messages to stderr after the
program has ended.

Examples:
  torchtap preload --types 'Conv2d|Linear' --reduce moments --save out/ -- ./program its arguments
  torchtap preload --what grad-output --names 'layer4.*' --not-types 'ReLU|Dropout.*' --reduce abs_max,histogram:64 --save out/ -- ./train
  torchtap preload --reduce mean --interval 60 --save out/ -- sh -c './first && ./second'
  torchtap preload --stream train -- ./train & torchtap watch train --wait-for 10
  torchtap preload --trace pass/ -- ./program its arguments; torchtap trace pass/ --draw pass.svg
  torchtap preload --report insight.json -- ./program its arguments; torchtap report insight.json
  torchtap preload --fingerprint port.prints -- ./port; torchtap compare original.prints port.prints
  torchtap preload --learn reference/ -- ./validate; torchtap preload --monitor reference/ --save incidents/ -- ./server
  torchtap preload --explore --save run1 -- ./train its arguments; torchtap explore run1

Exit status: that of the program, but 1 instead of 0 if a result could not be saved; 126 or 127 if it cannot be run, 2
for wrong options.)";

/// The environment of the program.
struct Environment {
  /// LD_PRELOAD of the program, and of the programs that it starts, which get the waiter alone.
  std::string libraries, of_children;
  std::string sanitizer;
  std::string agent = tools::find_library("libtorchtap_agent.so").string();
  /// The library that interposes LibTorch must be listed itself: dependencies are loaded after LibTorch.
  std::string interposer = tools::find_library(TORCHTAP_TRANSPARENT_LIBRARY).string();

  /// `has_torch`: the program links this command's LibTorch.
  Environment(const std::string& program, const std::vector<std::string>& own, bool has_torch) {
    const char* preloaded = std::getenv("LD_PRELOAD");
    const std::string others = preloaded == nullptr ? "" : std::string(":") + preloaded;
    of_children = tools::find_library("libtorchtap_preload.so").string();
    libraries = of_children + (has_torch ? ":" + agent + ":" + interposer : "") + others;
    of_children += others;
    // AddressSanitizer's library wants to be loaded first. It works behind torchtap's, which define none of
    // the functions that it replaces but `dlopen`, and call the next definition of that.
    if (const char* theirs = std::getenv("ASAN_OPTIONS")) sanitizer = std::string(theirs) + ":";
    sanitizer += "verify_asan_link_order=0";
    // Of two libraries that define a function, such as two BLAS, the first has the calls.
    if (!has_torch || !reordered(own, libraries_of(program, libraries))) return;
    for (const std::string& library : own) libraries += ":" + library;
  }
};

/// Replaces the child by the program.
void replace_by(std::vector<std::string>& program) {
  std::vector<char*> arguments;
  arguments.reserve(program.size() + 1);
  for (auto& argument : program) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
}

/// Replaces the child by the program with torchtap in it.
void become(const ProgramArea& area, const std::string& variable, const Environment& environment,
            std::vector<std::string>& program) {
  area.starts_here();
  ::setenv(kVariable, variable.c_str(), 1);
  ::setenv("LD_PRELOAD", environment.libraries.c_str(), 1);
  ::setenv("ASAN_OPTIONS", environment.sanitizer.c_str(), 1);
  replace_by(program);
}

/// What the launcher does while the program runs.
class Meanwhile {
 public:
  Meanwhile(const ProgramArea& area, const Config& config, Saver& saver)
      : area_(area),
        config_(config),
        saver_(saver)
#ifdef TORCHTAP_HAVE_EXPLORER
        ,
        pages_(config)
#endif
  {
  }
  std::function<std::chrono::milliseconds()> function() {
    if (!ReceivedFiles::has(config_) && config_.mode != "monitor" && config_.every == 0 &&
        saver_.streams() == nullptr)
      return nullptr;
    return [this] {
      constexpr std::chrono::milliseconds kPause(100);
      const auto now = std::chrono::steady_clock::now();
      if (now - received_ >= kPause) {
        receive();
        received_ = now;
      }
      if (config_.every != 0 && now - saved_ >= std::chrono::duration<double>(config_.every)) {
        saver_.save_so_far();
        saved_ = std::chrono::steady_clock::now();
      }
      return saver_.streams() == nullptr ? kPause
                                         : std::chrono::milliseconds(saver_.streams()->receive_known());
    };
  }
  /// Takes the files that processes hand over, and shows those of explorers.
  std::vector<Report> receive() {
    std::vector<Report> reports = area_.reports();
    saver_.receive(reports);
#ifdef TORCHTAP_HAVE_EXPLORER
    if (config_.mode == "explore") {
      for (Report& report : reports) {
        const std::string line = pages_.open(report, saver_.folder(report.number));
        if (!line.empty()) std::cerr << "torchtap: " << line << std::endl;
      }
    }
#endif
    return reports;
  }

 private:
  const ProgramArea& area_;
  const Config& config_;
  Saver& saver_;
#ifdef TORCHTAP_HAVE_EXPLORER
  ExploredPages pages_;
#endif
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now(), received_;
};

[[noreturn]] void run(Config config, const std::string& shown, std::vector<std::string>& program) {
  const Executable executable = find_executable(program[0]);
  if (executable.status != 0) {
    std::cerr << "torchtap: cannot run " << program[0] << ": "
              << std::strerror(executable.status == 127 ? ENOENT : EACCES) << '\n';
    tools::Notes::end_process(executable.status);
    std::exit(executable.status);
  }
  const char* preloaded = std::getenv("LD_PRELOAD");
  const std::vector<std::string> own = libraries_of(executable.path, preloaded == nullptr ? "" : preloaded);
  const std::string torch = torch_in(own);
  Ended ended;
  bool lost = false;
  if (!torch.empty() && torch != own_torch()) {
    ended = supervise([&] {
      replace_by(program);
      ::_exit(126);
    });
    std::cerr << "torchtap: nothing was recorded, and the program " << ran_without(torch) << '\n';
  } else {
    const Environment environment(executable.path, own, !torch.empty());
    config.libraries = environment.of_children;
    ProgramArea area(config, {environment.agent, environment.interposer, own_torch()});
    const std::string variable = area.variable();
    Saver saver(area, config);
    Meanwhile meanwhile(area, config, saver);
    ended = supervise(
        [&] {
          become(area, variable, environment, program);
          // For example, a script whose interpreter does not exist.
          std::cerr << "torchtap: cannot run " << program[0] << ": " << std::strerror(errno) << std::endl;
          tools::Notes::end_process(126);
          ::_exit(126);
        },
        meanwhile.function());
    if (saver.streams() != nullptr) saver.streams()->publish_all();
    std::vector<Report> reports = meanwhile.receive();
    saver.judge(reports, [&](const Report& report) { return left_by(report, ended); });
    saver.save(reports);
    if (saver.streams() != nullptr) saver.streams()->end(reports);
    settle(reports, config);
    for (const auto& line : summarize(reports, config, shown, ended, executable.path)) {
      std::cerr << "torchtap: " << line << '\n';
    }
    lost = std::any_of(reports.begin(), reports.end(), [&](const Report& report) {
      return report.lost || (report.attached && report.gone && !report.ended && report.directory.empty() &&
                             Saver::publishes(config));
    });
    saver.save_later(reports);
    saver.clean_up();
  }
  if (lost && WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 0) ended.status = W_EXITCODE(1, 0);
  std::cerr.flush();
  tools::Notes::end_process(WIFEXITED(ended.status) ? WEXITSTATUS(ended.status) : 128);
  end_as(ended);
}

}  // namespace

namespace {

void prepare_explorer(Config& config, const std::string& port) {
#ifdef TORCHTAP_HAVE_EXPLORER
  config.mode = "explore";
  config.port = std::stoll(port);
#else
  static_cast<void>(config);
  static_cast<void>(port);
  throw std::runtime_error(
      "--explore needs torchtap::explorer, without which this torchtap was built "
      "(-DTORCHTAP_COMPONENTS=tools,explorer, which needs Boost's headers).");
#endif
}

/// The files that an explorer wrote into the directory before.
void remove_run(const std::string& directory) {
  std::error_code error;
  for (const auto& file : fs::directory_iterator(directory + "/explorer", error)) {
    if (file.path().extension() == ".tapx") fs::remove(file.path());
  }
}

/// Something else instead of a recording.
struct Chosen {
  std::string trace, report, fingerprint, learn;  // where to
  std::string rules;                              // a file
  bool monitors = false;
  std::vector<std::string> values;
  bool explores = false;
  std::string port;
};

void prepare_monitor(Config& config, const Chosen& chosen) {
  const auto absolute = [](std::string& path) {
    if (!path.empty()) path = fs::absolute(path).lexically_normal().string();
  };
  config.mode = "monitor";
  if (!config.reference.empty())
    views::monitor::Reference::load(config.reference);  // throws what is wrong with it
  if (!chosen.rules.empty()) config.rules = rules::Rules::load(chosen.rules).text();
  for (std::string* path : {&config.reference, &config.metrics, &config.tensorboard}) absolute(*path);
}

/// Gives this rank places of its own.
void keep_ranks_apart(Config& config, std::int64_t rank) {
  const bool is_file = config.mode == "report" || config.mode == "fingerprint";
  if (!config.save.empty())
    config.save = is_file ? file_of_rank(config.save, rank) : folder_of_rank(config.save, rank);
  if (!config.metrics.empty()) config.metrics = file_of_rank(config.metrics, rank);
  if (!config.tensorboard.empty()) config.tensorboard = folder_of_rank(config.tensorboard, rank);
  if (!config.save.empty() && !is_file) fs::create_directories(fs::path(config.save).parent_path());
}

/// Runs the program. Throws `std::runtime_error` for options that do not go together.
[[noreturn]] void start(Config& config, const Chosen& chosen, std::vector<std::string>& program) {
  if (chosen.monitors && config.save.empty()) throw CLI::RequiredError("--save INCIDENTS");
  if (config.save.empty() && chosen.trace.empty() && chosen.report.empty() && chosen.fingerprint.empty() &&
      chosen.learn.empty() && config.stream.empty() && !chosen.explores) {
    throw CLI::RequiredError(
        "--save (or --stream, --trace, --report, --fingerprint, --learn, --explore or --monitor)");
  }
  if (config.what == "grad-parameter") {
    throw std::runtime_error(
        "--what grad-parameter is for `torchtap record`: this command attaches to modules as the program "
        "calls "
        "them, and gradients of parameters come with no call. In the program itself, attach a "
        "recorders::BackwardParameter to the model.");
  }
  if (!config.save.empty() && !config.stream.empty() && config.reduce.empty()) {
    throw std::runtime_error(
        "--stream sends samples and keeps none, so --save has nothing to save; add --reduce, or "
        "save what arrives: torchtap tail " +
        config.stream + " --save " + config.save + ".");
  }
  if (!config.stream.empty()) views::stream::Publisher::check(config.stream);
  if (chosen.explores) prepare_explorer(config, chosen.port);
  if (chosen.monitors) prepare_monitor(config, chosen);
  if (!chosen.learn.empty()) {
    config.mode = "learn";
    config.save = chosen.learn;
  } else if (!chosen.trace.empty()) {
    config.mode = "trace";
    config.save = chosen.trace;
  } else if (!chosen.report.empty()) {
    views::report::check_path(chosen.report);
    config.mode = "report";
    config.save = chosen.report;
  } else if (!chosen.fingerprint.empty()) {
    config.mode = "fingerprint";
    config.save = chosen.fingerprint;
    for (const std::string& value : chosen.values) {
      const auto colon = value.rfind(':');
      config.value_paths.push_back(value.substr(0, colon));
      config.value_samples.push_back(std::stoll(value.substr(colon + 1)));
    }
  }
  if (const auto rank = launched_rank()) keep_ranks_apart(config, *rank);
  if (config.save.empty()) run(config, "", program);
  std::string shown = config.save;
  while (shown.size() > 1 && shown.back() == '/') shown.pop_back();
  config.save = fs::absolute(config.save).lexically_normal().string();
  if (config.save.size() > 1 && config.save.back() == '/') config.save.pop_back();
  std::optional<const Reservation> reserved;
  if (!chosen.monitors) {  // whose alarms several programs may write to one file
    reserved.emplace(config.save);
    tools::check_free(config.save, config.overwrite);
  }
  if (chosen.monitors) config.alarms_before = size_of_alarms(config.save);
  if (chosen.explores) remove_run(config.save);
  run(config, shown, program);
}

/// The options of one kind of result do not go with another.
void keep_apart(CLI::Option* trace, CLI::Option* report, CLI::Option* fingerprint, CLI::Option* explore,
                CLI::Option* monitor, CLI::Option* learn, const std::vector<CLI::Option*>& of_recordings,
                CLI::Option* save) {
  for (CLI::Option* option : {trace, report, fingerprint, explore, monitor, learn}) {
    for (CLI::Option* other : of_recordings) {
      if (option != report || other->get_name() != "--interval") option->excludes(other);
    }
    for (const char* name :
         {"--types", "--not-types", "--names", "--not-names", "--over", "--elementwise", "--stream"}) {
      option->excludes(name);
    }
  }
  trace->excludes(save)->excludes(report);
  report->excludes(save);
  fingerprint->excludes(trace)->excludes(report)->excludes(save);
  explore->excludes(trace)->excludes(report)->excludes(fingerprint);
  monitor->excludes(trace)
      ->excludes(report)
      ->excludes(fingerprint)
      ->excludes(explore)
      ->excludes("--overwrite");
  learn->excludes(trace)
      ->excludes(report)
      ->excludes(fingerprint)
      ->excludes(explore)
      ->excludes(monitor)
      ->excludes(save);
}

void add_fingerprint_options(CLI::App& command, Config& config, Chosen& chosen, CLI::Option* fingerprint) {
  command.add_option("--forwards", config.forwards, "Forwards whose fingerprints are written; 0 for all")
      ->transform(tools::whole_number(0, 1LL << 40))
      ->capture_default_str()
      ->needs(fingerprint);
  command.add_option("--skip", config.skip, "Forwards that are left out before them")
      ->transform(tools::whole_number(0, 1LL << 40))
      ->capture_default_str()
      ->needs(fingerprint);
  command.add_option("--values", chosen.values, "Calls, PATH:NUMBER, whose tensors are written instead")
      ->allow_extra_args(false)
      ->check(CLI::Validator(
          [](std::string& text) {
            const auto colon = text.rfind(':');
            const bool good = colon != std::string::npos && colon + 1 < text.size() &&
                              text.size() - colon < 18 &&
                              text.find_first_not_of("0123456789", colon + 1) == std::string::npos;
            return good ? std::string() : "expected PATH:NUMBER, got \"" + text + "\"";
          },
          "PATH:NUMBER"))
      ->needs(fingerprint);
}

void add_monitor_options(CLI::App& command, Config& config, Chosen& chosen, CLI::Option* monitor) {
  command.add_option("--rules", chosen.rules, "File of rules and their thresholds")
      ->check(CLI::ExistingFile)
      ->needs(monitor);
  command
      .add_option("--cost", config.cost,
                  "Share of a forward's time that the monitor may take; 1: all forwards are counted")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->needs(monitor);
  command.add_option("--metrics", config.metrics, "File for Prometheus, written at the end of each window")
      ->check(torchtap::tools::place())
      ->needs(monitor);
  command
      .add_option("--tensorboard", config.tensorboard, "Folder for TensorBoard: histograms of each window")
      ->check(torchtap::tools::place())
      ->needs(monitor);
}

}  // namespace

void add_command(CLI::App& app) {
  auto config = std::make_shared<Config>();
  auto program = std::make_shared<std::vector<std::string>>();
  auto chosen = std::make_shared<Chosen>();
  CLI::App* command = app.add_subcommand("preload", "Record inside a program without rebuilding it");
  command->footer(kExamples);
  auto* what = command->add_option("--what", config->what, "What to record")
                   ->check(CLI::IsMember(tools::recorder_names()))
                   ->capture_default_str();
  tools::add_which_options(*command, config->which);
  auto* reduce = command->add_option("--reduce", config->reduce, torchtap::tools::reduce_help());
  command->add_option("--over", config->over, "Dimensions of a sample that count as rows: '0' or '0,2,3'")
      ->delimiter(',');
  command
      ->add_flag("--elementwise", config->elementwise,
                 "Reduce elementwise over samples; without this and --over, over all elements")
      ->excludes("--over");
  auto* save = command->add_option("-o,--save", config->save, "Directory of the recording");
  command->add_option(
      "--stream", config->stream,
      "Send what is recorded to readers of this name while the program runs: torchtap watch NAME; "
      "samples are then not kept, results of --reduce are");
  command->add_option("--readers", config->readers, "Wait for this many readers before the first module runs")
      ->transform(tools::whole_number(0, 64))
      ->needs("--stream");
  command->add_option("--stream-memory", config->stream_memory, tools::kStreamMemoryHelp)
      ->transform(tools::whole_number(1, 1 << 20))
      ->capture_default_str()
      ->needs("--stream");
  auto* interval = command
                       ->add_option("--interval", config->every,
                                    "Seconds after which the recording is saved, again and again")
                       ->check(CLI::PositiveNumber);
  auto* trace =
      command
          ->add_option("--trace", chosen->trace, "Directory: log every operation of one forward pass instead")
          ->check(torchtap::tools::place());
  auto* report =
      command
          ->add_option("--report", chosen->report, "File (.json, .csv, .html): measure each module instead")
          ->check(torchtap::tools::place());
  auto* fingerprint =
      command
          ->add_option("--fingerprint", chosen->fingerprint,
                       "File: write fingerprints of all tensors instead, for torchtap compare")
          ->check(torchtap::tools::place());
  add_fingerprint_options(*command, *config, *chosen, fingerprint);
  auto* explore =
      command
          ->add_flag(
              "--explore{0}", chosen->port,
              "Show the program's models as a live page instead; --explore=PORT for one port, otherwise "
              "the first free one from 8080 on")
          ->transform(tools::whole_number(0, 65535))
          ->type_name("PORT");
  auto* monitor =
      command
          ->add_option("--monitor", config->reference,
                       "Watch the program's models instead, against this reference, or with rules "
                       "alone if it is \"\"; alarms and incidents go to --save")
          ->type_name("REFERENCE");
  add_monitor_options(*command, *config, *chosen, monitor);
  auto* learn = command
                    ->add_option("--learn", chosen->learn,
                                 "Directory: learn the reference for --monitor instead, from all forwards")
                    ->check(torchtap::tools::place());
  tools::add_overwrite(*command, config->overwrite);
  keep_apart(trace, report, fingerprint, explore, monitor, learn, {what, reduce, interval}, save);
  command
      ->add_option("--keep", config->keep,
                   "Tensors of the trace to keep: all, none, or names such as 'conv*'")
      ->delimiter(',')
      ->needs(trace);
  command->add_option("program", *program, "The program and its arguments, after --")->required();
  command->callback([config, program, chosen, explore, monitor] {
    chosen->explores = explore->count() > 0;
    chosen->monitors = monitor->count() > 0;
    start(*config, *chosen, *program);
  });
}

}  // namespace torchtap::tools::preload
