#include "selection_options.hpp"

#include <CLI/CLI.hpp>

namespace torchtap::tools {

void add_which_options(CLI::App& command, Which& which) {
  command.add_option("-t,--types", which.types, "Regular expression on whole type names: 'Conv2d|Linear'");
  command.add_option("--not-types", which.not_types, "Types to leave out: 'Dropout.*'");
  command.add_option("-n,--names", which.names, "Globs on paths: 'layer1.*'")->delimiter(',');
  command.add_option("--not-names", which.not_names, "Paths to leave out: '*.downsample*'")->delimiter(',');
}

}  // namespace torchtap::tools
