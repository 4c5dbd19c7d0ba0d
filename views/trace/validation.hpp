#pragma once

/// What `History::validate` found.

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <torchtap/core/api.hpp>

namespace torchtap::views::trace {

/// An operation that `History::validate` could not confirm.
struct TORCHTAP_API Finding {
  enum class Kind {
    /// Run again on the kept arguments, it gave other bits.
    differs,
    /// It threw when run again.
    threw,
    /// It gave the same bits after one of its parents had been changed, so that parent may be wrong.
    ignores_parent,
    /// Its arguments or results are not kept any more: they were changed after the pass.
    changed,
  };

  Kind kind = Kind::differs;
  /// The label of the node, or of the operation's first node.
  std::string label;
  /// "aten::conv2d".
  std::string function;
  std::string message;
};

/// The result of `History::validate`: true if every operation was confirmed or is of a kind that cannot be.
struct TORCHTAP_API Validation {
  /// What is wrong, in the order of the operations.
  std::vector<Finding> findings;
  /// How many operations were run again and gave the same bits, and how many of them took random numbers.
  std::int64_t confirmed = 0;
  std::int64_t random = 0;
  /// Operations whose results are not determined by their arguments: memory that was never written (`empty`),
  /// memory from outside, a generator of the program's own, nested tensors;
  /// with their labels.
  std::vector<std::string> undetermined;
  /// How many times an operation was run with one of its parents changed.
  std::int64_t perturbed = 0;

  explicit operator bool() const noexcept { return findings.empty(); }
  /// Prints the numbers, and a line for each finding.
  friend std::ostream& operator<<(std::ostream& out, const Validation& validation) {
    return validation.print(out);
  }

 private:
  TORCHTAP_API std::ostream& print(std::ostream& out) const;
};

}  // namespace torchtap::views::trace
