#pragma once

#include <string>
#include <vector>

#include "recordings.hpp"

/// Which modules of two recordings are compared with each other.
namespace torchtap::tools {

struct Pair {
  const Layer* a;  ///< null where A has none
  const Layer* b;  ///< null where B has none

  const Layer& either() const { return a != nullptr ? *a : *b; }
};

/// The modules of A in the order in which they finish, each with the one of B that has its path or an alias;
/// then those that only B has. Where both are single files (`files`), these are a pair whatever they are
/// called.
std::vector<Pair> pair_up(const Layers& a, const Layers& b, bool files);

}  // namespace torchtap::tools
