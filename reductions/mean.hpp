#pragma once

/// Computes the arithmetic mean of the samples.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/total.hpp>

namespace torchtap::reductions {

/// `MeanOptions().over({0}).non_finite(NonFinite::omit)`.
class TORCHTAP_API MeanOptions : public FoldOptions<MeanOptions> {};

/// The arithmetic mean of the samples, elementwise or over rows.
///
/// Samples are `[...]`, any numeric dtype and device, and the mean has their shape; `over(dims)` also folds
/// dimensions of each sample. The sum is kept in float64 (complex128), so that long streams of float32 stay
/// exact. The mean has the dtype of the samples, float32 for half types, float64 for integers. Under
/// `NonFinite::omit` each element has its own denominator, and an element that was never finite is NaN.
class TORCHTAP_API Mean : public Total {
 public:
  explicit Mean(MeanOptions options = {});
  /// As `Sum::merge`.
  void merge(const Mean& other) { merge_from(other); }
  /// The same reduction without samples.
  Mean fresh() const { return cleared(*this); }
};

}  // namespace torchtap::reductions
