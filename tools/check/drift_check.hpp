#pragma once

#include <string>
#include <vector>

#include <torchtap/rules/rules.hpp>

/// Whether what a recording has differs from a reference by more than the reference from itself.
namespace torchtap::tools {

/// Compares each tensor that both recordings have by `views::monitor::DriftTest`: `reference` has results of
/// `Blocks`; `recording` has those, of which each run of about 256 rows is a window, or of
/// `LogHistogram(3, over_all)`, which is one. Of each tensor the worst window that drifted is a finding.
/// Appends to `notes` what was not compared, and why. Throws `c10::ValueError` if nothing was, and what
/// `views::monitor::Reference::load` and `storage::load` throw.
std::vector<rules::Finding> drift_findings(const std::string& recording, const std::string& reference,
                                           const rules::Rules& rules, std::vector<std::string>& notes);

}  // namespace torchtap::tools
