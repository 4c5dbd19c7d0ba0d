#pragma once

/// Computes the largest magnitude of the samples.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extremum.hpp>

namespace torchtap::reductions {

/// `AbsMaxOptions().over({0})`.
class TORCHTAP_API AbsMaxOptions : public FoldOptions<AbsMaxOptions> {};

/// The largest magnitude, elementwise or over rows, in the dtype of the samples; int64 for integers and bool,
/// real for complex samples.
class TORCHTAP_API AbsMax : public Extremum {
 public:
  explicit AbsMax(AbsMaxOptions options = {});
  /// As `Min::merge`.
  void merge(const AbsMax& other) { merge_from(other); }
  /// The same reduction without samples.
  AbsMax fresh() const { return cleared(*this); }
};

}  // namespace torchtap::reductions
