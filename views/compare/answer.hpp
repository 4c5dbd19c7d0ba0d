#pragma once

/// Answers what differs first between two runs, of a verdict and of what trials of its suspects said.

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/views/compare/pairs.hpp>
#include <torchtap/views/compare/run.hpp>
#include <torchtap/views/compare/verdict.hpp>

namespace torchtap::views::compare {

/// One suspect that was tried with the other program's input, as `python3 -m torchtap_compare --try` answers.
struct Tried {
  std::optional<bool> proved;             ///< it computes something else; false: it amplified rounding
  double own_error = 0, other_error = 0;  ///< of what it computes in float64, from both programs' inputs
  std::string cause;                      ///< "" if none was found
  double cause_error = 0;                 ///< the error that is left with that
  std::string where;                      ///< the part of the output that differs
  std::string reason;                     ///< why it is not proved
  std::string search;                     ///< why no cause was found, if it was not looked for to the end
  std::string operation;                  ///< the first one inside that differs
  /// The module of A that was tried for the stretch between two others: it is all that A did there, and was
  /// not seen in B.
  std::string unseen;
};

/// Suspects and modules that fingerprints do not judge, in the order of events.
TORCHTAP_API std::vector<const Divergence*> suspects_of(const Verdict& verdict);

/// The answer.
struct TORCHTAP_API Answer {
  std::optional<Divergence> first;  ///< what differs first
  std::optional<Tried> tried;       ///< of the first, if it is a module
  std::size_t innocent = 0;         ///< suspects before it that amplified rounding
  std::size_t judged = 0;           ///< modules that only values can judge, and did
  std::vector<std::string> gaps;    ///< what was not compared, so that agreement of the rest proves nothing
  std::string input_cause;          ///< why the inputs differ
  std::string input_search;         ///< why no cause of that was found
  bool own_is_a = true;             ///< A's modules were tried with B's inputs, or B's modules with A's

  /// Whether everything was compared and agrees.
  bool agrees() const noexcept { return !first && gaps.empty(); }
  /// Whether `first` is proved to compute something else; a weight or input that differs needs no proof.
  bool is_proved() const;
  /// Why `first` differs, as far as it is known; else "".
  std::string cause() const;
};

/// The first suspect that was not tried or is no amplified rounding, or the first module that fingerprints do
/// not judge and that was tried and computes something else. `tried` has one for each of `suspects_of`, or is
/// empty if no trial was made.
TORCHTAP_API Answer answer_of(const Verdict& verdict, const std::vector<std::optional<Tried>>& tried = {});

/// How an answer is printed.
struct AnswerOptions {
  std::string name_a, name_b;  ///< of the runs
  bool all = false;            ///< every call is a row of the table
  std::size_t width = 80;      ///< characters in a line
  bool ascii = false;          ///< the table is drawn in ASCII
  /// What to do to prove the answer, where nothing was tried: a sentence.
  std::string how_to_prove;
  std::string more_forwards;  ///< how all forwards are compared, if only some were: a sentence
};

/// Prints the weights and calls that were paired, the first difference with what is around it, and why.
TORCHTAP_API void print(std::ostream& out, const Run& a, const Run& b, const Pairs& pairs,
                        const Verdict& verdict, const Answer& answer, const AnswerOptions& options);

}  // namespace torchtap::views::compare
