#pragma once

/// Computes the smallest value of the samples.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extremum.hpp>

namespace torchtap::reductions {

/// `MinOptions().over({0})`.
class TORCHTAP_API MinOptions : public FoldOptions<MinOptions> {};

/// The smallest value, elementwise or over rows, in the dtype of the samples. Real samples only.
class TORCHTAP_API Min : public Extremum {
 public:
  explicit Min(MinOptions options = {});
  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const Min& other) { merge_from(other); }
  /// The same reduction without samples.
  Min fresh() const { return cleared(*this); }
};

}  // namespace torchtap::reductions
