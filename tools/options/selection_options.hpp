#pragma once

#include "selection.hpp"

namespace CLI {
class App;
}

namespace torchtap::tools {

/// Adds --types, --not-types, --names and --not-names.
void add_which_options(CLI::App& command, Which& which);

}  // namespace torchtap::tools
