#pragma once

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
};

/// Compares two runs by their fingerprints and prints what differs first. Returns the exit status.
int compare_prints(const PrintsOptions& options);

}  // namespace torchtap::tools
