#pragma once

// Runs two compared programs again, to prove or acquit the suspects.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/views/compare/answer.hpp>
#include <torchtap/views/compare/verdict.hpp>

#include "compared_program.hpp"
#include "files/json.hpp"

namespace torchtap::tools {

/// The result of a second run of both programs, with all values of the suspects.
struct SecondPass {
  using Tried = views::compare::Tried;
  bool own_is_a = true;  ///< A's modules were tried with B's inputs, or B's modules with A's
  std::vector<std::optional<Tried>> tried;  ///< for each of `suspects_of` that is a module
  std::string input_cause;
  std::string input_search;  ///< why no cause was found, if it was not looked for to the end
};

/// Runs both again, and tries the suspects in Python's run. Writes its files into `folder`. Throws
/// `c10::Error` if a program fails, or does not do again what it did. `windows` are the options that choose
/// the forwards of each.
SecondPass second_pass(const std::array<ComparedProgram, 2>& programs,
                       const std::array<std::vector<std::string>, 2>& windows, const std::string& folder,
                       const views::compare::Run& a, const views::compare::Run& b,
                       const views::compare::Pairs& pairs, const views::compare::Verdict& verdict,
                       const views::compare::Thresholds& thresholds);

}  // namespace torchtap::tools
