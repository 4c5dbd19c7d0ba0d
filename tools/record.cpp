#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <CLI/CLI.hpp>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <torchtap/base/error.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/views/monitor/options.hpp>
#include <torchtap/views/stream/publisher.hpp>

#include "commands.hpp"
#include "files/json.hpp"
#include "models/call_watch.hpp"
#include "models/called_methods.hpp"
#include "models/companions.hpp"
#include "models/exported_packages.hpp"
#include "models/model.hpp"
#include "models/output_sum.hpp"
#include "options/option_checks.hpp"
#include "options/recorder_options.hpp"
#include "options/selection_options.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/message_text.hpp"
#include "terminal/progress.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

namespace fs = std::filesystem;

std::string record_examples() {
  return c10::str(R"(
Runs a TorchScript file, or a package that AOTInductor compiled with taps (.pt2), and records the tensors that flow
through its modules. Read the recording with
`torchtap show`, with torchtap::storage::load in C++, or with torch.load in Python.

)",
                  describe_inputs(), R"(

Gradients are those of the sum of all floating-point outputs.

Patterns of --types and --not-types match short type names ("Conv2d") or, if no type in the model matches, qualified
ones ("__torch__.torch.nn.modules.conv.Conv2d"). --not-types and --not-names exclude modules that the other options
select.

--stream NAME sends what is recorded to other programs while the model runs: torchtap watch NAME, torchtap tail NAME,
torchtap.stream of Python. Samples are then not kept; results of --reduce are, and are sent after each call.

A module is recorded by the method that the model calls, which may differ from forward. At the end the command names
modules that were not called, calls without tensors, and quantized tensors, which are left out unless --dequantize is
given. Ctrl-C and SIGTERM finish the recording after the current call; a second Ctrl-C stops immediately.

Examples:
  torchtap record model.pt --input batch.pt --input more/*.pt --types Conv2d --names 'layer*' \
          --reduce mean,histogram:64:-4:4 --over 0 --save maps/
  torchtap record model.pt --random 8x3x224x224 --seed 1 --what input --not-types 'Dropout|StochasticDepth' --save raw/
  torchtap record model.pt --idx3 t10k-images-idx3-ubyte.gz --batch 64 --reduce moments --save stats/
  torchtap record model.pt --idx3 t10k-images.gz --with labels=t10k-labels.gz --batch 250 --over 0 \
          --reduce 'by(labels:10, moments, count)' --save classes/
  torchtap record moe.pt --input x.pt --names 'blocks.*.moe' --with expert=@./router:1 --over 0 \
          --reduce 'by(expert, moments)' --save experts/
  torchtap record a.pt --beside b.pt --input x.pt --batch 64 --reduce 'cka(beside)' --save cka/
  torchtap record model.pt2 --input batch.pt --reduce moments --save maps/
  torchtap record model.pt --input tokens.npy --batch 32 --rows 0,1 --where mask=mask.npy --beside label=labels.npy \
          --save dump/
  torchtap record model.pt --random 8x3x224x224 --count 1000 --stream resnet
  torchtap record model.pt --input validation/*.pt --learn reference/
  torchtap record model.pt --random 4x16:int64:30522 --what grad-output --reduce abs_max --save gradients/

Exit status: 0; 1 if nothing was recorded, or nothing for one of --names; 2 on errors.)");
}

struct RecordOptions {
  std::string model;
  InputOptions inputs;
  std::string what = "output";
  Which which;
  std::string method = "forward";
  std::string reduce;
  std::vector<std::string> with;
  std::vector<std::string> beside;  // a model, or NAME=FILE with rows
  std::vector<std::int64_t> rows;
  std::string where;
  std::vector<std::int64_t> over;
  bool elementwise = false;
  bool all_tensors = false;
  std::string save;
  bool learn = false;  // the model's inputs, too
  std::string stream;
  std::int64_t readers = 0;
  std::int64_t stream_memory = 256;  // MiB
  bool overwrite = false;
  bool train = false;
  bool enable_grad = false;
  bool dequantize = false;
  bool json = false;
  std::string device = "cpu";
  std::int64_t memory = 1024;  // MiB
};

/// Skips quantized tensors, which the file format does not support, and notes their modules.
class Quantized {
 public:
  /// Returns false if any of the tensors is quantized.
  bool accept(const recorders::Sample& sample) {
    for (std::int64_t i = 0; i < sample.slots(); ++i) {
      const at::Tensor& tensor = sample.tensor(i);
      if (!tensor.defined() || !tensor.is_quantized()) continue;
      const std::lock_guard lock(mutex_);
      paths_.insert(sample.path());
      return false;
    }
    return true;
  }
  bool has(const std::string& path) const { return paths_.count(path) != 0; }

 private:
  std::mutex mutex_;
  std::set<std::string> paths_;
};

/// A recording in progress, and the data of its final report.
struct Run {
  const RecordOptions& options;
  std::vector<model::ModuleRef> modules;  // those recorded, in the recorder's order
  Methods methods;
  Quantized quantized;
  std::optional<views::stream::Publisher> publisher;
  std::unique_ptr<recorders::Recorder> recorder, model_inputs;  // the latter with --learn
  std::vector<std::string> needed;       // names that the reduction looks up and no module gives
  std::vector<std::string> with;         // --with of files and numbers
  std::vector<model::ModuleRef> beside;  // modules of --beside
  std::function<void(const Batch&)> call_beside;
  std::int64_t calls = 0;
  int signal = 0;

  explicit Run(const RecordOptions& options) : options(options) {}
  void detach() {
    recorder->detach();
    if (model_inputs != nullptr) model_inputs->detach();
  }
  bool gradients() const { return options.what.compare(0, 4, "grad") == 0; }
  bool parameters() const { return options.what == "grad-parameter"; }
};

/// The paths, up to a limit.
std::string some(std::vector<std::string> names) {
  constexpr std::size_t kMost = 12;
  const std::size_t all = names.size();
  if (all > kMost) names.resize(kMost);
  std::replace(names.begin(), names.end(), std::string(), std::string("(root)"));
  return base::quoted(names) + (all > kMost ? c10::str(" (and ", all - kMost, " more)") : "");
}

void warn(const std::vector<std::string>& paths, const std::string& what, const std::string& why) {
  if (!paths.empty()) std::cerr << "torchtap: " << what << ' ' << some(paths) << ": " << why << '\n';
}

/// Whether something was recorded of the `index`th module, or of its parameters.
bool has_samples(const Run& run, std::size_t index) {
  if (!run.parameters()) return (*run.recorder)[static_cast<std::int64_t>(index)].samples() != 0;
  const std::string& module = run.modules[index].path();
  return std::any_of(run.recorder->begin(), run.recorder->end(), [&](const auto& parameter) {
    const std::size_t dot = parameter.path().rfind('.');
    return parameter.samples() != 0 &&
           parameter.path().substr(0, dot == std::string::npos ? 0 : dot) == module;
  });
}

/// Whether each of --names recorded something, and anything was recorded at all.
bool has_what_was_named(const Run& run) {
  for (const auto& name : run.options.which.names) {
    const auto named = selectors::names(name);
    bool found = false;
    for (std::size_t i = 0; i < run.modules.size() && !found; ++i) {
      found = named(run.modules[i]) && has_samples(run, i);
    }
    if (!found) return false;
  }
  return run.recorder->samples() != 0;
}

void summarize(Run& run) {
  const RecordOptions& options = run.options;
  recorders::Recorder& recorder = *run.recorder;
  std::vector<std::string> silent, empty, quantized, unmatched, left_out;
  // By method, as many modules may share one.
  std::map<std::string, std::vector<std::string>> instead, others;
  for (const auto& subrecorder : recorder) {
    const std::string& path = subrecorder.name();
    if (run.quantized.has(path)) quantized.push_back(path);
    if (subrecorder.without_tensors() != 0) empty.push_back(path);
    if (subrecorder.unmatched() != 0) unmatched.push_back(path);
    if (subrecorder.left_out() != 0) left_out.push_back(path);
    if (subrecorder.events() == 0) silent.push_back(path);
    const auto other = run.methods.instead.find(path);
    if (other != run.methods.instead.end() && subrecorder.samples() != 0)
      instead[other->second].push_back(path);
    const auto further = run.methods.others.find(path);
    if (further == run.methods.others.end()) continue;
    for (const auto& method : further->second) others[method].push_back(path);
  }
  if (options.json) {
    print({{"saved", options.save},
           {"streamed", options.stream},
           {"modules", recorder.size()},
           {"calls", run.calls},
           {"samples", recorder.samples()},
           {"interrupted", run.signal != 0},
           {"never_ran", silent},
           {"without_tensors", empty},
           {"quantized", quantized},
           {"unmatched", unmatched},
           {"left_out", left_out},
           {"recorded_by", instead},
           {"also_called_by", others}});
  } else {
    std::cout << counted(recorder.size(), run.parameters() ? "parameter" : "module") << ", "
              << counted(recorder.samples(), "sample") << " of " << counted(run.calls, "call")
              << (options.save.empty() ? " to " : " in ")
              << (options.save.empty() ? "readers of " + options.stream : options.save) << '\n';
  }
  warn(silent, "nothing was recorded of",
       run.gradients() ? "no gradient arrived there." : "the model did not call them.");
  if (!silent.empty() && !options.enable_grad && !run.gradients()) {
    std::cerr << "torchtap: some modules, such as transformer layers, do not call their submodules unless "
                 "gradients are enabled; use --enable-grad.\n";
  }
  warn(empty, "left out calls of", "they passed no tensors.");
  warn(quantized, "left out calls of", "they passed quantized tensors; --dequantize records their values.");
  warn(unmatched, "left out samples of",
       "a module of --with or --beside was called another number of times in the same forward.");
  if (!left_out.empty()) {
    warn(left_out, "left out samples of",
         "they do not fit. Of the first one, " + recorder.at(left_out.front()).note());
  }
  for (const auto& [method, paths] : instead) {
    warn(paths, "recorded by the method " + method + ":",
         "the model does not call their " + options.method + ".");
  }
  for (const auto& [method, paths] : others) {
    warn(paths, "the model also calls",
         "by their method " + method + "; --method " + method + " records that.");
  }
}

void keep_samples(recorders::RecorderOptions& how, const RecordOptions& options) {
  const auto spool = storage::SpoolOptions().mkdir(true).overwrite(options.overwrite);
  if (options.memory == 0 || !options.rows.empty()) {
    how.spool(options.save, spool);
  } else {
    how.memory_budget(options.memory << 20, options.save, spool);
  }
}

/// Names the companions from other modules, and leaves the rest of --with to `Companions`.
void add_companions(Run& run, recorders::RecorderOptions& how) {
  const auto given = [&](const std::string& name, recorders::Companion companion) {
    how.with(name, std::move(companion));
    run.needed.erase(std::remove(run.needed.begin(), run.needed.end(), name), run.needed.end());
  };
  for (const auto& text : run.options.with) {
    if (auto companion = companion_of_module(text, run.methods.modules)) {
      given(companion->first, std::move(companion->second));
    } else {
      run.with.push_back(text);
    }
  }
  if (!run.beside.empty()) given("beside", recorders::output(run.beside));
}

/// Has rows kept, and leaves the files of --where and --beside to `Companions`.
void add_rows(Run& run, recorders::RecorderOptions& how) {
  const RecordOptions& options = run.options;
  how.rows(options.rows);
  const auto named = [&](const char* option, const std::string& text) {
    const auto equals = text.find('=');
    TORCH_CHECK_VALUE(equals != 0 && equals != std::string::npos && equals + 1 < text.size(), option, " ",
                      text, ": with --rows, expected NAME=FILE, such as label=labels.npy.");
    run.with.push_back(text);
    run.needed.push_back(text.substr(0, equals));
    return run.needed.back();
  };
  if (!options.where.empty()) how.where(named("--where", options.where));
  for (const auto& text : options.beside) how.beside({named("--beside", text)});
}

recorders::RecorderOptions how_to_record(Run& run) {
  const RecordOptions& options = run.options;
  recorders::RecorderOptions how;
  if (run.publisher.has_value()) how.stream(*run.publisher).device(at::kCPU);
  if (options.reduce.empty()) {
    if (!run.publisher.has_value()) keep_samples(how, options);
    if (!options.rows.empty()) add_rows(run, how);
  } else {
    auto reduction = make_reduction(options.reduce, options.over, options.elementwise);
    run.needed = reduction.companions();
    if (!run.needed.empty()) how.device(at::kCPU);
    how.reduction(std::move(reduction));
    add_companions(run, how);
  }
  how.all_tensors(options.all_tensors);
  if (options.dequantize) {
    how.transform(recorders::dequantized);
  } else {
    how.condition([&run](const recorders::Sample& sample) { return run.quantized.accept(sample); });
  }
  return how;
}

/// The method by which the model is called: the recorded one, if the model itself has it.
std::string called_method(const torch::jit::Module& model, const std::string& recorded) {
  if (model.find_method(recorded).has_value() || !model.find_method("forward").has_value()) return recorded;
  for (const auto& module : model.modules()) {
    if (module.find_method(recorded).has_value()) return "forward";
  }
  return recorded;
}

void save(const Run& run) {
  if (run.options.save.empty()) return;
  const auto how = storage::SaveOptions().mkdir(true).overwrite(run.options.overwrite);
  if (run.model_inputs == nullptr) return run.recorder->save(run.options.save, how);
  auto entries = run.model_inputs->entries();
  for (auto& entry : run.recorder->entries()) entries.push_back(std::move(entry));
  storage::save(run.options.save, entries, how);
}

/// Calls the model until the inputs end or a signal arrives, then saves.
void run_model(Run& run, Inputs& inputs, const std::function<c10::IValue(const Batch&)>& call_model) {
  const RecordOptions& options = run.options;
  Companions companions(run.with, run.needed, options.inputs, inputs.count(),
                        options.rows.empty() ? "--with" : "--where/--beside");
  const Interrupt interrupt;
  try {
    const at::AutoGradMode mode(run.gradients() || options.enable_grad);
    Progress progress("recording", inputs.count());
    while (interrupt.signal() == 0) {
      const auto batch = inputs.next();
      if (!batch) break;
      const core::Context named(companions.next());
      const auto result = call_model(*batch);
      if (run.call_beside != nullptr) run.call_beside(*batch);
      if (run.gradients()) sum_of_outputs(result).backward();
      ++run.calls;
      progress.advance();
    }
  } catch (const std::exception& error) {
    std::cerr << "torchtap: batch " << run.calls << ": " << explain(error) << '\n';
    if (run.recorder->samples() != 0 && !options.save.empty()) {
      save(run);
      std::cerr << "torchtap: the recording up to there is in " << options.save << ".\n";
    }
    throw CLI::RuntimeError(2);
  }
  if (interrupt.signal() == 0 || run.recorder->samples() != 0) save(run);
  run.signal = interrupt.signal();
}

/// Publishes, and waits for as many readers as were asked for.
void publish(Run& run) {
  const RecordOptions& options = run.options;
  if (options.stream.empty()) return;
  run.publisher.emplace(options.stream, views::stream::PublisherOptions().bytes(options.stream_memory << 20));
  const Interrupt interrupt;
  while (static_cast<std::int64_t>(run.publisher->readers().size()) < options.readers &&
         interrupt.signal() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (interrupt.signal() != 0) end_by(interrupt.signal());
}

/// Loads the model of --beside.
void load_beside(Run& run, at::Device device) {
  const RecordOptions& options = run.options;
  if (options.beside.empty() || !options.rows.empty()) return;
  const std::string& file = options.beside.front();
  if (is_package(file)) {
    const auto package = std::make_shared<Package>(file);
    run.beside = package->modules();
    run.call_beside = [package, device](const Batch& batch) { package->call(batch, device); };
    return;
  }
  const auto model = std::make_shared<torch::jit::Module>(load_model(file, device));
  const std::string called = called_method(*model, options.method);
  find_method(*model, called);  // throws if it does not exist
  model->train(options.train);
  run.beside = find_methods(*model, called, options.method).modules;
  run.call_beside = [model, called, device, &run](const Batch& batch) {
    call(*model, called, to_arguments(*model, called, batch, device, false), [&] { run.detach(); });
  };
}

/// The modules that a monitor watches: the requested ones, or its default, and the model itself.
selectors::Selector watched(const Which& which, const std::vector<model::ModuleRef>& modules) {
  const bool any =
      !which.types.empty() || !which.not_types.empty() || !which.names.empty() || !which.not_names.empty();
  return (any ? selector_of(which, modules) : views::monitor::default_selection()) || selectors::depth(0);
}

/// Throws an error with the nearest types if no module's type matches.
void check_types(const std::string& types, const std::vector<model::ModuleRef>& modules) {
  if (types.empty()) return;
  const selectors::Selector wanted = matching_types("--types", types, modules);
  std::set<std::string> known;
  for (const auto& module : modules) {
    if (wanted(module)) return;
    known.insert(module.type());
  }
  TORCH_CHECK_VALUE(false, "--types '", types, "' matches none of the ", modules.size(),
                    " modules; the nearest types are ",
                    base::quoted(base::nearest(types, {known.begin(), known.end()})), ".");
}

void attach(Run& run) {
  const auto& modules = run.methods.modules;
  check_types(run.options.which.types, modules);
  run.modules = selectors::select(modules, run.options.learn ? watched(run.options.which, modules)
                                                             : selector_of(run.options.which, modules));
  publish(run);
  run.recorder = make_recorder(run.options.what, how_to_record(run));
  run.recorder->attach(run.modules);
  if (!run.options.learn) return;
  run.model_inputs = make_recorder("pre", how_to_record(run));
  run.model_inputs->attach({modules.front()});
}

void record_script(Run& run) {
  const RecordOptions& options = run.options;
  const at::Device device(options.device);
  torch::jit::Module model = load_model(options.model, device);
  const std::string called = called_method(model, options.method);
  find_method(model, called);  // throws if it does not exist
  model.train(options.train);
  Inputs inputs(options.inputs);
  load_beside(run, device);
  run.methods = find_methods(model, called, options.method);
  attach(run);
  run_model(run, inputs, [&](const Batch& batch) {
    return call(model, called, to_arguments(model, called, batch, device, run.gradients()),
                [&] { run.detach(); });
  });
}

void record_package(Run& run) {
  const RecordOptions& options = run.options;
  TORCH_CHECK_VALUE(
      options.method == "forward" && !options.train && !options.enable_grad,
      "a package (.pt2) has one method, in the mode in which it was exported, and no gradients; --method, "
      "--train and --enable-grad are for TorchScript files.");
  const at::Device device(options.device);
  const Package package(options.model);
  Inputs inputs(options.inputs);
  load_beside(run, device);
  run.methods.modules = package.modules();
  attach(run);
  run_model(run, inputs, [&](const Batch& batch) { return package.call(batch, device); });
}

/// Returns the signal that ended the run; 0 if there was none.
int record(const RecordOptions& options) {
  TORCH_CHECK_VALUE(
      options.save.empty() || options.stream.empty() || !options.reduce.empty(),
      "--stream sends samples and keeps none, so --save has nothing to save; add --reduce, or save what "
      "arrives: torchtap tail ",
      options.stream, " --save ", options.save, ".");
  TORCH_CHECK_VALUE(options.beside.empty() || !options.rows.empty() || !options.reduce.empty(),
                    "--beside names a model for --reduce, or with --rows NAME=FILE; add one of them.");
  TORCH_CHECK_VALUE(options.beside.size() <= 1 || !options.rows.empty(), "--beside was given ",
                    options.beside.size(), " times; one model can be beside another.");
  if (!options.save.empty()) check_free(options.save, options.overwrite);
  Run run(options);
  if (is_package(options.model)) {
    record_package(run);
  } else {
    record_script(run);
  }
  if (run.signal != 0 && run.recorder->samples() == 0) {
    std::cerr << "torchtap: interrupted after " << run.calls << " calls; nothing was recorded.\n";
    return run.signal;
  }
  summarize(run);
  if (run.signal != 0) {
    std::cerr << "torchtap: interrupted after " << run.calls << (run.calls == 1 ? " call" : " calls")
              << (options.save.empty() ? "" : "; the recording up to there is in " + options.save) << ".\n";
  } else if (options.stream.empty() && !has_what_was_named(run)) {
    throw CLI::RuntimeError(1);
  }
  return run.signal;
}

void add_reduction_options(CLI::App& command, RecordOptions& options) {
  auto* reduce = command.add_option("--reduce", options.reduce, reduce_help());
  add_companion_option(command, options.with);
  command
      .add_option(
          "--beside", options.beside,
          "A second model, called with the same inputs; --reduce finds the output of its module at the "
          "same path as 'beside': cka(beside), cross_covariance(beside), joint(beside, covariance). With "
          "--rows "
          "NAME=FILE: what to keep beside each row, split as --input is; may be given several times")
      ->type_name("FILE|NAME=FILE");
  auto* rows =
      command
          .add_option("--rows", options.rows,
                      "Keep rows of tensors as samples: the dimensions whose elements are rows, '0' or "
                      "'0,1' of [B, T, C]; with --where and --beside a dump, see torchtap show --rows")
          ->delimiter(',')
          ->transform(whole_number())
          ->excludes(reduce)
          ->excludes("--with");
  command
      .add_option("--where", options.where,
                  "NAME=FILE: keep only the rows that are true in this tensor, split as --input is")
      ->type_name("NAME=FILE")
      ->needs(rows);
  auto* over = command
                   .add_option("--over", options.over,
                               "Dimensions of a sample that count as rows: '0' or '0,2,3'; without this or "
                               "--elementwise, all elements are reduced")
                   ->delimiter(',')
                   ->transform(whole_number())
                   ->needs(reduce);
  command.add_flag("--elementwise", options.elementwise, "Reduce elementwise over samples")
      ->excludes(over)
      ->needs(reduce);
}

void add_stream_options(CLI::App& command, RecordOptions& options) {
  auto* stream =
      command.add_option("--stream", options.stream, "Send what is recorded to readers of this name");
  command.add_option("--readers", options.readers, "Wait for this many readers before the model runs")
      ->transform(whole_number(0, 64))
      ->needs(stream);
  command.add_option("--stream-memory", options.stream_memory, kStreamMemoryHelp)
      ->transform(whole_number(1, 1 << 20))
      ->capture_default_str()
      ->needs(stream);
}

}  // namespace

void add_record(CLI::App& app) {
  auto options = std::make_shared<RecordOptions>();
  CLI::App* command =
      app.add_subcommand("record", "Run a TorchScript file or a tapped package and record its modules");
  command->footer(record_examples());
  command
      ->add_option("model", options->model,
                   "A file of torch.jit.script or torch.jit.trace, or a tapped package (.pt2)")
      ->required();
  add_input_options(*command, options->inputs);
  command->add_option("--what", options->what, "What to record")
      ->check(CLI::IsMember(recorder_names()))
      ->capture_default_str();
  add_which_options(*command, options->which);
  command
      ->add_option("--method", options->method,
                   "The method to call; if the model itself lacks it, its modules are recorded "
                   "by that method while its forward is called")
      ->capture_default_str();
  add_library_option(*command);
  add_reduction_options(*command, *options);
  command->add_flag("--dequantize", options->dequantize,
                    "Record the values of quantized tensors; otherwise they are left out");
  command->add_flag("--all-tensors", options->all_tensors,
                    "Record all tensors of an input or output; otherwise only the first");
  command->add_option("-o,--save", options->save, "Directory of the recording")->check(place());
  add_stream_options(*command, *options);
  for (const char* const other : {"--stream", "--all-tensors"})
    command->get_option("--rows")->excludes(command->get_option(other));
  auto* learn = command->add_option_function<std::string>(
      "--learn",
      [options](const std::string& folder) {
        options->save = folder;
        options->learn = options->all_tensors = true;
        options->reduce = "blocks";
      },
      "Directory of a reference for torchtap::monitor and `torchtap check --against`: a recording of the "
      "distributions "
      "(blocks) of the model's inputs and outputs and of its leaves' outputs, without norms, dropout and "
      "identity "
      "unless --types or --names say otherwise. Use data that the model was not trained on");
  learn->check(place());
  for (const char* const other :
       {"--save", "--what", "--reduce", "--stream", "--over", "--elementwise", "--beside", "--rows"})
    learn->excludes(command->get_option(other));
  add_overwrite(*command, options->overwrite);
  command
      ->add_option("--memory", options->memory,
                   "MiB of samples to keep in memory; beyond that all go to disk as they arrive, in shards; "
                   "0: from the start")
      ->transform(whole_number(0, 1 << 30))
      ->capture_default_str();
  command->add_flag("--train", options->train,
                    "Run the model in training mode; otherwise in evaluation mode");
  command->add_flag("--enable-grad", options->enable_grad, "Run the model with gradients enabled");
  command->add_option("--device", options->device, "Where the model runs: cpu, cuda, cuda:1")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Write the summary as JSON");
  command->callback([options] {
    if (options->save.empty() && options->stream.empty())
      throw CLI::RequiredError("--save (or --stream, or --learn)");
    if (const int signal = record(*options)) {
      std::cout << std::flush;
      end_by(signal);
    }
  });
}

}  // namespace torchtap::tools
