#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <regex>
#include <torchtap/core/error.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "asked.hpp"
#include "checks.hpp"
#include "commands.hpp"
#include "json.hpp"
#include "model.hpp"
#include "progress.hpp"
#include "terminal.hpp"
#include "watch.hpp"
#include "words.hpp"

namespace torchtap::tools {
namespace {

namespace fs = std::filesystem;

std::string examples() {
  return c10::str(R"(
Runs a TorchScript file and records what flows through its modules; the recording is read by `torchtap show`, by
torchtap::storage::load in C++ and by torch.load in Python.

)",
                  describe_inputs(), R"(

Gradients are those of the sum of all floating point outputs.

Examples:
  torchtap record model.pt --input batch.pt --input more/*.pt --types Conv2d --names 'layer*' \
          --reduce mean,histogram:64:-4:4 --over 0 --save maps/
  torchtap record model.pt --random 8x3x224x224 --seed 1 --what input --save raw/
  torchtap record model.pt --idx3 t10k-images-idx3-ubyte.gz --batch 64 --reduce moments --save stats/
  torchtap record model.pt --random 4x16:int64:30522 --what grad-output --reduce abs_max --save gradients/

Exit status: 0; 1 if a module that --types or --names selects never ran; 2 on errors.)");
}

struct Options {
  std::string model;
  InputOptions inputs;
  std::string what = "output";
  std::string types;
  std::vector<std::string> names;
  std::string method = "forward";
  std::string reduce;
  std::vector<std::int64_t> over;
  bool elementwise = false;
  bool all_tensors = false;
  std::string save;
  bool overwrite = false;
  bool train = false;
  bool enable_grad = false;
  bool json = false;
  std::string device = "cpu";
  std::int64_t memory = 1024;  // MiB
};

selectors::Selector selector_of(const Options& options) {
  selectors::Selector selector;
  if (!options.types.empty()) {
    const std::regex types(options.types);
    selector = selector && selectors::Selector(
                               [types](const core::ModuleRef& module) {
                                 return std::regex_match(module.type(), types) ||
                                        std::regex_match(module.qualified_type(), types);
                               },
                               "--types '" + options.types + "'");
  }
  if (!options.names.empty()) selector = selector && selectors::names(options.names);
  return selector;
}

void run_backward(const c10::IValue& result) {
  std::vector<at::Tensor> sums;
  result.visit([&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined() && part.toTensor().requires_grad()) {
      sums.push_back(part.toTensor().sum());
    }
    return false;
  });
  TORCH_CHECK_VALUE(!sums.empty(),
                    "no output of the model depends on its parameters or inputs by a gradient.");
  at::Tensor sum = sums.front();
  for (std::size_t i = 1; i < sums.size(); ++i) sum = sum + sums[i];
  sum.backward();
}

void check_free(const Options& options) {
  std::error_code error;
  TORCH_CHECK_VALUE(
      options.overwrite || !fs::exists(options.save, error) || fs::is_empty(options.save, error), "\"",
      options.save, "\" is there already; --overwrite replaces a recording.");
}

void summarize(recorders::Recorder& recorder, const Options& options, std::int64_t calls) {
  std::vector<std::string> silent;
  for (const auto& subrecorder : recorder) {
    if (subrecorder.samples() == 0) silent.push_back(subrecorder.name());
  }
  if (options.json) {
    print({{"saved", options.save},
           {"modules", recorder.size()},
           {"calls", calls},
           {"samples", recorder.samples()},
           {"never_ran", silent}});
  } else {
    std::cout << counted(recorder.size(), "module") << ", " << counted(recorder.samples(), "sample") << " of "
              << counted(calls, "call") << " in " << options.save << '\n';
  }
  if (silent.empty()) return;
  std::cerr << "torchtap: nothing was recorded of " << core::quoted(silent)
            << (options.what.compare(0, 4, "grad") == 0 ? ": no gradient arrived there.\n"
                                                        : ": the model did not call them.\n");
  if (!options.enable_grad && options.what.compare(0, 4, "grad") != 0) {
    std::cerr << "torchtap: some modules, such as transformer layers, do without their submodules where no "
                 "gradient is asked for; --enable-grad has them called.\n";
  }
  // A model need not call all of its modules; one that was asked for has to be there.
  if (!options.types.empty() || !options.names.empty()) throw CLI::RuntimeError(1);
}

void keep_samples(recorders::Options& how, const Options& options) {
  const auto spool = storage::SpoolOptions().mkdir(true).overwrite(options.overwrite);
  if (options.memory == 0) {
    how.spool(options.save, spool);
  } else {
    how.memory_budget(options.memory << 20, options.save, spool);
  }
}

void record(const Options& options) {
  check_free(options);
  const at::Device device(options.device);
  const bool gradients = options.what.compare(0, 4, "grad") == 0;
  torch::jit::Module model = load_model(options.model, device);
  find_method(model, options.method);
  model.train(options.train);
  Inputs inputs(options.inputs);

  recorders::Options how;
  if (options.reduce.empty()) {
    keep_samples(how, options);
  } else {
    how.reduction(make_reduction(options.reduce, options.over, options.elementwise));
  }
  how.all_tensors(options.all_tensors);
  const auto recorder = make_recorder(options.what, std::move(how));
  recorder->modules(model, selector_of(options), options.method);

  const auto save = [&] {
    recorder->save(options.save, storage::SaveOptions().mkdir(true).overwrite(options.overwrite));
  };
  std::int64_t calls = 0;
  try {
    const at::AutoGradMode mode(gradients || options.enable_grad);
    Progress progress("recording", inputs.count());
    while (const auto batch = inputs.next()) {
      const auto result =
          call(model, options.method, to_arguments(model, options.method, *batch, device, gradients),
               [&] { recorder->detach(); });
      if (gradients) run_backward(result);
      ++calls;
      progress.advance();
    }
  } catch (const std::exception& error) {
    std::cerr << "torchtap: batch " << calls << ": " << explain(error) << '\n';
    if (recorder->samples() != 0) {
      save();
      std::cerr << "torchtap: what was recorded before is in " << options.save << ".\n";
    }
    throw CLI::RuntimeError(2);
  }
  save();
  summarize(*recorder, options, calls);
}

}  // namespace

void add_record(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("record", "Run a TorchScript file and record its modules");
  command->footer(examples());
  command->add_option("model", options->model, "A file of torch.jit.script or torch.jit.trace")->required();
  add_input_options(*command, options->inputs);
  command->add_option("--what", options->what, "What to record")
      ->check(CLI::IsMember(recorder_names()))
      ->capture_default_str();
  command->add_option("--types", options->types, "Regular expression on whole type names: 'Conv2d|Linear'");
  command->add_option("--names", options->names, "Globs on paths: 'layer1.*'")->delimiter(',');
  command->add_option("--method", options->method, "The method that is called and recorded")
      ->capture_default_str();
  auto* reduce = command->add_option(
      "--reduce", options->reduce,
      "Reductions, comma-separated: 'moments', 'mean,histogram:64:-4:4'; without, every sample is "
      "kept");
  auto* over = command
                   ->add_option("--over", options->over,
                                "Dimensions of a sample that are rows: '0' or '0,2,3'; without this and "
                                "--elementwise, all elements are reduced")
                   ->delimiter(',')
                   ->transform(whole_number())
                   ->needs(reduce);
  command->add_flag("--elementwise", options->elementwise, "Reduce elementwise over samples")
      ->excludes(over)
      ->needs(reduce);
  command->add_flag("--all-tensors", options->all_tensors,
                    "All tensors of an input or output that has several; else the first");
  command->add_option("--save", options->save, "Where the recording goes")->required()->check(place());
  command->add_flag("--overwrite", options->overwrite, "Replace a recording that is there");
  command
      ->add_option(
          "--memory", options->memory,
          "How many MiB of samples may be kept in memory; with more, all go to disk as they come, in shards; "
          "0: at once")
      ->transform(whole_number(0, 1 << 30))
      ->capture_default_str();
  command->add_flag("--train", options->train, "Run the model in training mode; else in evaluation mode");
  command->add_flag("--enable-grad", options->enable_grad,
                    "Run the model as in training, ready for a backward");
  command->add_option("--device", options->device, "Where the model runs: cpu, cuda, cuda:1")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Write the summary as JSON");
  command->callback([options] { record(*options); });
}

}  // namespace torchtap::tools
