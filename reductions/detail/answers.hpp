#pragma once

/// Defines `Answers`, what reductions learn of a sample, whoever read it.

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/fast/reader.hpp>
#include <torchtap/reductions/options.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions::detail {

/// What was asked for of a sample: of a `Pass` that reads it on the CPU, or of a `Ledger`.
class TORCHTAP_API Answers {
 public:
  /// A summary of each kept element, in order; empty if there is no answer.
  virtual c10::ArrayRef<Summary> summaries(const Folding& folding) const = 0;
  /// Adds the number of elements in each of the bins, below, above and NaN to `slots`, [kept, bins + 3].
  /// Returns false and changes nothing if there is no answer.
  virtual bool count_bins(const Folding& folding, const Edges& edges, std::int64_t* slots) const = 0;
  /// The counts of each kept element by the bits of its numbers; null if there is no answer.
  virtual const std::vector<SlotCounts>* count_bits(const Folding& folding, BitBins bins) const = 0;

 protected:
  ~Answers() = default;
};

}  // namespace torchtap::reductions::detail
