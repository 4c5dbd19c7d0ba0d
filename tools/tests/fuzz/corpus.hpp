#pragma once

// The files to mutate: a small one of each kind that the library reads, the same in each run.

#include <string>
#include <vector>

#include "input.hpp"

namespace fuzz {

struct Corpus {
  std::vector<Input> inputs;
  /// Fingerprints of all tensors and samples in the files.
  std::set<std::string> written;
};

/// `folder` is for temporary files.
Corpus make_corpus(const std::string& folder);

/// Restores the snapshot in `file` into a matching recorder. Lets exceptions through.
void restore_snapshot(const std::string& file);
void write_snapshot(const std::string& file);

}  // namespace fuzz
