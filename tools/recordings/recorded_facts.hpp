#pragma once

#include <string>
#include <vector>

#include <torchtap/recorders/kind.hpp>
#include <torchtap/rules/rules.hpp>

#include "recordings.hpp"
#include "statistics.hpp"

/// The facts of a recording's tensors, for the rules.
namespace torchtap::tools {

/// The rules' kind for tensors of an entry of this kind; an output if it has none.
inline rules::Tensor tensor_of(const std::string& kind) {
  if (kind.empty()) return rules::Tensor::output;
  const auto* const known = recorders::find_kind(kind);
  if (known == nullptr) return rules::Tensor::input;
  return known->gradients ? rules::Tensor::gradient
         : known->outputs ? rules::Tensor::output
                          : rules::Tensor::input;
}

/// A tensor of a recording: its results, if it keeps results, and the facts from these or from its samples.
struct RecordedTensor {
  const Layer* layer;
  Statistics statistics;  ///< empty if the entry keeps samples
  rules::Facts facts;
};

/// A row for each tensor and key, in the order of the recording; one for an entry without samples. The values
/// of samples are read only `with_samples`; otherwise nothing is known of them.
///
/// Facts come from results of every reduction: counts of `Count`, `Histogram`, `LogHistogram` and `Blocks`;
/// means, deviations and norms of any number of kept elements, which are pooled; extrema. `EMA`, `First`,
/// `Last` and `Mean` of several elements give extrema, too, which are compared with the extrema of other
/// modules. A NaN or infinite result shows that there are such values, but not how many.
std::vector<RecordedTensor> recorded_tensors(const Layers& layers, bool with_samples);

/// The findings of the rules for each of `rows`. Rows of other kinds, reductions or keys are not compared
/// with each other.
std::vector<std::vector<rules::Finding>> findings_of(const std::vector<RecordedTensor>& rows,
                                                     const rules::Rules& rules = {});

/// Whether there are NaN or infinities among the values or in a result.
bool has_nonfinite(const Statistics& statistics);

/// When a rule holds, in words, with its thresholds; "" for a rule that is not of the catalogue.
std::string meaning_of(const std::string& rule);

}  // namespace torchtap::tools
