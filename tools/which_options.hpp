#pragma once

#include "which.hpp"

namespace CLI {
class App;
}

namespace torchtap::tools {

/// --types, --not-types, --names, --not-names.
void add_which_options(CLI::App& command, Which& which);

}  // namespace torchtap::tools
