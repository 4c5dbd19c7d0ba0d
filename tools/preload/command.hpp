#pragma once

#include <CLI/App.hpp>

namespace torchtap::tools::preload {

/// `torchtap preload … -- program arguments`: runs the program with the agent loaded into it.
void add_command(CLI::App& app);

}  // namespace torchtap::tools::preload
