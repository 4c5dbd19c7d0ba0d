#pragma once

// Prints how far the statistics of two recordings are apart.

#include <string>
#include <vector>

#include "movement.hpp"
#include "recordings/manifest.hpp"

namespace torchtap::tools {

/// The names of the compared recordings and the options of the comparison.
struct MovementOptions {
  std::string a, b;
  double tolerance = 0.1;
  Format format = Format::table;
  /// Tensors that blocks could not judge, and why.
  std::vector<std::string> notes = {};
};

/// Prints one row per module to stdout, largest distance first.
void print_movements(std::vector<Movement> movements, const MovementOptions& options);

}  // namespace torchtap::tools
