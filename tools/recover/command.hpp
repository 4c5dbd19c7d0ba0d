#pragma once

#include <CLI/App.hpp>

namespace torchtap::tools::recover {

/// `torchtap recover DIRECTORY`: reports what a crash left of a spooled recording, and finishes it.
void add_command(CLI::App& app);

}  // namespace torchtap::tools::recover
