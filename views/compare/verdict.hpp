#pragma once

/// Finds the first difference between two runs that rounding does not explain.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/views/compare/difference.hpp>
#include <torchtap/views/compare/pairs.hpp>
#include <torchtap/views/compare/run.hpp>

namespace torchtap::views::compare {

/// A record differs if its error is more than `tolerance` units of rounding and more than `gain` times the
/// largest error of its inputs, or if its scale differs by more than `gain` units and `gain` times its
/// inputs'.
struct Thresholds {
  double tolerance = 16, gain = 4;  ///< as above
  bool bits = false;                ///< any different bit counts

  /// "16,4". Throws `c10::ValueError` if these are not two numbers, 0 or greater.
  TORCHTAP_API static Thresholds parse(const std::string& text);
  /// The error that rounding explains in a tensor computed from tensors that differ by `given`.
  TORCHTAP_API Extent allowed(const Difference& made, const Extent& given) const;
};

/// Something that differs.
struct TORCHTAP_API Divergence {
  /// The kind of the difference.
  enum class Kind : std::uint8_t {
    weight,   ///< `path` names it
    input,    ///< of the root
    module,   ///< what a module returns, though what it was given agrees
    between,  ///< what the code of `path` made between two of the modules that it calls
  };

  Kind kind = Kind::module;
  std::string path, path_b, type;  ///< of the module, or the name of the weight ("" on the side without it)
  /// The call of `path` or, for a weight, of its module, in both runs; `kNone` if it was not seen.
  std::uint32_t call_a = kNone, call_b = kNone;
  std::uint32_t sample = 0, sample_b = 0;  ///< which of the recorded calls of their modules these are
  std::uint32_t record_a = kNone, record_b = kNone;  ///< what differs
  std::uint32_t thread = 0, rank = 0;
  std::uint16_t slot = 0;
  double error = 0;          ///< relative
  double scale = 1;          ///< B's norm by A's
  double allowed = 0;        ///< the error that rounding explains
  double allowed_scale = 0;  ///< the limit for |ln scale|
  /// Paths of the calls before and after the differing tensor, and the numbers of these calls; empty at the
  /// beginning and end of `path`.
  std::string after, before;
  std::uint32_t after_call = 0, before_call = 0;  ///< which calls of `after` and `before`
  std::string cause;                              ///< if fingerprints show one, else empty
  bool certain = false;  ///< no values could prove more: another number of results, an exception
  /// Whole numbers, true or false that the program was given back: they are not rounded, so that no other
  /// precision acquits the module.
  bool exact = false;
  /// Its inputs differ so much that fingerprints cannot decide whether it computes something else.
  bool unjudged = false;
  /// A call of A that made the differing tensor and has no pair in B, and B's records of its inputs.
  std::uint32_t unseen = kNone;
  std::vector<std::uint32_t> unseen_inputs;  ///< the records of B
};

/// "weight", "input", "module", "between".
TORCHTAP_API std::string name_of(Divergence::Kind kind);

/// Two calls that were compared.
struct Row {
  std::uint32_t a = kNone, b = kNone;  ///< indexes of calls
  double error_in = 0, error = 0;      ///< the largest errors of inputs and of outputs
  double allowed = 0;                  ///< what rounding explains of the output with the largest error
  double scale = 1;                    ///< of that output
  bool same_bits = true;               ///< of all inputs and outputs
  bool differs = false;                ///< more than the thresholds allow
};

/// Two weights, or one (`kNone` on the side that lacks it).
struct WeightRow {
  std::uint32_t a = kNone, b = kNone;  ///< indexes of records
  Difference difference;               ///< how far they are apart
  bool agrees = false;                 ///< the same bits, or the same up to rounding to the coarser dtype
  bool compared = false;               ///< both are there and have a fingerprint
  std::string words;                   ///< the difference as `in_words` says it
};

/// The result of comparing two runs.
struct TORCHTAP_API Verdict {
  /// Whether all compared tensors agree.
  bool agree() const noexcept { return suspects.empty(); }

  std::vector<Divergence>
      suspects;  ///< up to five, in the order in which they happened; the first is the answer
  std::optional<Divergence> first_bits;              ///< the first different bits of all inputs and outputs
  std::vector<Row> rows;                             ///< in the order of A
  std::vector<WeightRow> weights;                    ///< all weights, A's first
  std::vector<std::uint32_t> only_a, only_b;         ///< calls without a partner
  std::int64_t compared = 0;                         ///< inputs and outputs
  std::map<std::string, std::int64_t> not_compared;  ///< how many of paired calls and weights, by reason
  double largest_error = 0;                          ///< of those compared, with its module
  std::string largest_at;                            ///< the module of `largest_error`
  /// The outputs, later forwards and calls that were not compared, so that agreement of the rest does not
  /// prove that nothing differs: no output around them or behind them stands for them. In words. Whatever a
  /// call returned is among these until it was compared.
  std::vector<std::string> gaps;
  /// Modules that fingerprints do not judge (`Divergence::unjudged`), the first of them, and how many tensors
  /// are not judged.
  std::vector<Divergence> unjudged;
  std::int64_t unjudged_tensors = 0;  ///< of all of them
  std::string unjudged_from;          ///< the first module
  /// How many differences are left out of `suspects`, as one of the same module is there in another call.
  std::int64_t repeated = 0;
  /// The first weight that differs, even if no computed tensor does.
  std::optional<Divergence> weight;
  /// Outputs of the model that have different dtypes: "(root) returns float32 in A, float16 in B".
  std::vector<std::string> dtypes;
};

/// Throws `c10::ValueError` if nothing could be compared.
TORCHTAP_API Verdict judge(const Run& a, const Run& b, const Pairs& pairs, const Thresholds& thresholds = {});

}  // namespace torchtap::views::compare
