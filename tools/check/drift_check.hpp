#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <torchtap/rules/rules.hpp>

/// Judges whether a recording differs from a reference by more than blocks of the reference differ from it.
namespace torchtap::tools {

/// The verdict on the drift of a recording.
struct DriftVerdict {
  std::vector<rules::Finding> findings;
  /// Path, kind and slot of each tensor that was judged.
  std::set<std::tuple<std::string, std::string, std::int64_t>> judged;
  std::vector<std::string> not_judged;  ///< what was not, and why
  /// How many tensors both have distributions of, judged or not.
  std::size_t compared = 0;
};

/// Compares each tensor that both recordings have by `views::monitor::DriftTest`: `reference` has results of
/// `Blocks`; `recording` has those, of which each run of about 256 rows is a window, or of
/// `LogHistogram(3, over_all)`, which is one. The worst window of each tensor that drifted is a finding.
/// Throws as `views::monitor::Reference::load` and `storage::load` do.
DriftVerdict judge_drift(const std::string& recording, const std::string& reference,
                         const rules::Rules& rules);

}  // namespace torchtap::tools
