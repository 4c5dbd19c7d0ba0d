#pragma once

#include <string>
#include <vector>

#include "drift.hpp"
#include "recordings/manifest.hpp"

namespace torchtap::tools {

/// The names of the compared recordings and the options of the comparison.
struct DriftOptions {
  std::string a, b;
  double tolerance = 0.1;
  Format format = Format::table;
};

/// Prints one row per module to stdout, largest distance first.
void print_drifts(std::vector<Drift> drifts, const DriftOptions& options);

}  // namespace torchtap::tools
