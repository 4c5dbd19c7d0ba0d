#pragma once

#include <CLI/App.hpp>

/// The subcommands; each adds itself. Errors are exceptions; a status other than 0 is a `CLI::RuntimeError`.
namespace torchtap::tools {

/// `torchtap list`: the modules of a model.
void add_list(CLI::App& app);
/// `torchtap record`: runs a model and records its modules.
void add_record(CLI::App& app);
/// `torchtap show`: what is in a recording.
void add_show(CLI::App& app);
/// `torchtap diff`: two recordings, module by module.
void add_diff(CLI::App& app);
/// `torchtap merge`: several recordings as one.
void add_merge(CLI::App& app);
/// `torchtap convert`: a recording for other programs.
void add_convert(CLI::App& app);
/// `torchtap completion`: a script for a shell.
void add_completion(CLI::App& app);

}  // namespace torchtap::tools
