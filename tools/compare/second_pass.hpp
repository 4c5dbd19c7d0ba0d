#pragma once

// Runs two compared programs again, to prove or acquit the suspects.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/views/compare/verdict.hpp>

#include "compared_program.hpp"
#include "files/json.hpp"

namespace torchtap::tools {

/// The result of a second run of both programs, with all values of the suspects.
struct SecondPass {
  /// One suspect that was tried, as `python3 -m torchtap_compare --try` answers.
  struct Tried {
    std::optional<bool> proved;  ///< it computes something else; false: it amplified rounding
    double own_error = 0, other_error = 0;
    std::string cause;
    double cause_error = 0;
    std::string where;
    std::string reason;     ///< why it is not proved
    std::string search;     ///< why no cause was found, if it was not looked for to the end
    std::string operation;  ///< the first one inside that differs
    /// The module of A that was tried for the stretch between two others: it is all that A did there, and was
    /// not seen in B.
    std::string unseen;
  };
  bool own_is_a = true;  ///< A's modules were tried with B's inputs, or B's modules with A's
  std::vector<std::optional<Tried>> tried;  ///< for each of `asked_of` that is a module
  std::string input_cause;
  std::string input_search;  ///< why no cause was found, if it was not looked for to the end
};

/// The subjects of a second pass, in the order of events: suspects, and modules that fingerprints do not
/// judge.
std::vector<const views::compare::Divergence*> asked_of(const views::compare::Verdict& verdict);

/// Runs both again, and tries the suspects in Python's run. Writes its files into `folder`. Throws
/// `c10::Error` if a program fails, or does not do again what it did. `windows` are the options that choose
/// the forwards of each.
SecondPass second_pass(const std::array<ComparedProgram, 2>& programs,
                       const std::array<std::vector<std::string>, 2>& windows, const std::string& folder,
                       const views::compare::Run& a, const views::compare::Run& b,
                       const views::compare::Pairs& pairs, const views::compare::Verdict& verdict,
                       const views::compare::Thresholds& thresholds);

}  // namespace torchtap::tools
