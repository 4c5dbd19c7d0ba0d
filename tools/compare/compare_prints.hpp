#pragma once

// `torchtap compare` of prints files, or of two programs that write them.

#include <cstdint>
#include <string>
#include <vector>

namespace torchtap::tools {

/// The options of a comparison of fingerprints.
struct PrintsOptions {
  std::vector<std::string> sides;  ///< two files or pipes; "-" is stdin
  std::vector<std::string> runs;   ///< or two command lines
  std::vector<std::string> map;    ///< "layer1.*=stage1.*"
  std::string tolerance;           ///< "16,4"; "" for the default
  bool bits = false, all = false, json = false;
  std::int64_t forwards = 1, skip = 0;  ///< of both programs: which are compared; 0 forwards are all
};

/// Compares two runs by their fingerprints and prints what differs first. Returns the exit status: 0 if
/// everything was compared and agrees, 1 if something differs, 3 if not all was compared and the rest agrees.
int compare_prints(const PrintsOptions& options);

}  // namespace torchtap::tools
