#pragma once

/// The result of `History::validate`.

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::views::trace {

/// The result of `History::validate` for one operation.
struct TORCHTAP_API Fault {
  /// The kind of a fault.
  enum class Kind {
    /// Run again on the kept arguments, it gave other bits.
    differs,
    /// It threw when run again.
    threw,
    /// Its arguments or results are not kept any more: they were changed after the pass.
    changed,
    /// It read a value of an operation that is not among its ancestors.
    lacks_parent,
    /// It read nothing that one of its parents wrote.
    false_parent,
    /// It gave the same bits for other values of a parent: that one may be wrong, or does not matter here.
    ignores_parent,
    /// The pass as a whole could not be run again, so that parents were not tried.
    not_repeated,
  };

  Kind kind = Kind::differs;  ///< what is wrong
  /// The label of the node, or of the operation's first node.
  std::string label;
  /// "aten::conv2d".
  std::string function;
  std::string message;  ///< the fault in words
};

/// The result of `History::validate`: true if nothing is wrong.
struct TORCHTAP_API Validation {
  /// The errors, in the order of the operations.
  std::vector<Fault> findings;
  /// Parents that could not be confirmed, with the reason. These are not errors: a product with zeros does
  /// not depend on its other factor.
  std::vector<Fault> unconfirmed;
  /// How many operations were run again and gave the same bits.
  std::int64_t confirmed = 0;
  std::int64_t random = 0;  ///< how many of them took random numbers
  /// Operations whose results are not determined by their arguments: memory that was never written (`empty`),
  /// memory from outside, a generator of the program's own, nested tensors, tensors inside of
  /// torch.func's transforms (vmap, grad), which are not kept, and all that was computed there, tensors
  /// without values (on the device meta, or of PyTorch's compilers); with their labels.
  std::vector<std::string> undetermined;
  /// How many times an operation was run with one of its parents changed.
  std::int64_t perturbed = 0;
  /// How many operations had their results changed in a run of the pass, to see who reads them.
  std::int64_t followed = 0;

  /// Whether nothing is wrong.
  explicit operator bool() const noexcept { return findings.empty(); }
  /// Prints the numbers, and a line for each finding.
  friend std::ostream& operator<<(std::ostream& out, const Validation& validation) {
    return validation.print(out);
  }

 private:
  TORCHTAP_API std::ostream& print(std::ostream& out) const;
};

}  // namespace torchtap::views::trace
