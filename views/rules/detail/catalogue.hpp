#pragma once

// The thresholds of the rules, and the numbers that each may be.

#include <string>
#include <vector>

namespace torchtap::rules::detail {

struct Key {
  const char* name;
  double standard;     // unless a file or program sets another
  double least, most;  // what it may be set to
  bool whole = false;  // to a whole number alone
};

/// The keys of a rule of the catalogue; null for another name.
const std::vector<Key>* keys_of(const std::string& rule);

}  // namespace torchtap::rules::detail
