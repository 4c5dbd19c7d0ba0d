#pragma once

// The files that are mutated: one of each kind that the library reads, small, and the same each time.

#include <string>
#include <vector>

#include "input.hpp"

namespace fuzz {

struct Corpus {
  std::vector<Input> inputs;
  /// Fingerprints of all tensors and samples in them.
  std::set<std::string> written;
};

/// `folder` is for what is made on the way.
Corpus make_corpus(const std::string& folder);

/// Goes on from a snapshot in `file` with the recorder that it is of; what it throws it throws.
void restore_snapshot(const std::string& file);
void write_snapshot(const std::string& file);

}  // namespace fuzz
