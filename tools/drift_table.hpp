#pragma once

#include <string>
#include <vector>

#include "drift.hpp"
#include "manifest.hpp"

namespace torchtap::tools {

/// What was compared, and how strictly.
struct DriftOptions {
  std::string a, b;
  double tolerance = 0.1;
  Format format = Format::table;
};

/// One row a module to stdout, the largest distance first.
void print_drifts(std::vector<Drift> drifts, const DriftOptions& options);

}  // namespace torchtap::tools
