#pragma once

#include <CLI/App.hpp>

/// The subcommands; each function adds one. Errors are exceptions; an exit status other than 0 is a
/// `CLI::RuntimeError`.
namespace torchtap::tools {

/// `torchtap list`: lists the modules of a model.
void add_list(CLI::App& app);
/// `torchtap record`: runs a model and records its modules.
void add_record(CLI::App& app);
/// `torchtap trace`: runs a model and logs its operations.
void add_trace(CLI::App& app);
/// `torchtap report`: runs a model and says what each module costs, or shows a saved report.
void add_report(CLI::App& app);
/// `torchtap explore`: shows runs of an explorer in the browser. Only if torchtap::explorer is built.
void add_explore(CLI::App& app);
/// `torchtap show`: shows a recording.
void add_show(CLI::App& app);
/// `torchtap check`: says what rules find in a recording.
void add_check(CLI::App& app);
/// `torchtap formats`: says what formats of low precision would lose.
void add_formats(CLI::App& app);
/// `torchtap compare`: says what differs first between two runs, recordings or files.
void add_compare(CLI::App& app);
/// `torchtap replay`: runs the forwards of an incident again.
void add_replay(CLI::App& app);
/// `torchtap calibrate`: chooses scales and zero points from recorded distributions.
void add_calibrate(CLI::App& app);
/// `torchtap evaluate`: counts the right answers of a classifier, and measures the cost of quantization.
void add_evaluate(CLI::App& app);
/// `torchtap quantize`: converts a TorchScript file to int8.
void add_quantize(CLI::App& app);
/// `torchtap merge`: merges several recordings into one.
void add_merge(CLI::App& app);
/// `torchtap convert`: writes a recording in other formats.
void add_convert(CLI::App& app);
/// `torchtap completion`: prints a completion script for a shell.
void add_completion(CLI::App& app);

}  // namespace torchtap::tools
