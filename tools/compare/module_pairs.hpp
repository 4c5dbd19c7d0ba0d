#pragma once

#include <string>
#include <vector>

#include "recordings/recordings.hpp"

/// Pairs the modules of two recordings for comparison.
namespace torchtap::tools {

struct Pair {
  const Layer* a;  ///< null if A lacks the module
  const Layer* b;  ///< null if B lacks the module

  const Layer& either() const { return a != nullptr ? *a : *b; }
  /// Whether a side has samples. A side without the module counts as if it never called the module.
  bool ran() const {
    return (a != nullptr && a->entry.samples() > 0) || (b != nullptr && b->entry.samples() > 0);
  }
};

/// The modules of A in the order in which they finish, each with the module of B that has its path or an
/// alias; then the modules that only B has. If only B is a recording, which knows the order, the other way
/// round. Two single tensors form a pair unless both files name theirs.
std::vector<Pair> pair_up(const Layers& a, const Layers& b);

}  // namespace torchtap::tools
