#pragma once

/// Computes the largest value of the samples.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extremum.hpp>

namespace torchtap::reductions {

/// `MaxOptions().over({0})`.
class TORCHTAP_API MaxOptions : public FoldOptions<MaxOptions> {};

/// The largest value, elementwise or over rows, in the dtype of the samples. Real samples only.
class TORCHTAP_API Max : public Extremum {
 public:
  explicit Max(MaxOptions options = {});
  /// As `Min::merge`.
  void merge(const Max& other) { merge_from(other); }
  /// The same reduction without samples.
  Max fresh() const { return cleared(*this); }
};

}  // namespace torchtap::reductions
