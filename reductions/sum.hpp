#pragma once

/// Computes the sum of the samples.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/total.hpp>

namespace torchtap::reductions {

/// `SumOptions().over({0}).non_finite(NonFinite::omit)`.
class TORCHTAP_API SumOptions : public FoldOptions<SumOptions> {};

/// The sum of the samples, as `acc.add_(x)` in torch.
///
/// Samples are `[...]`, any numeric dtype and device, and the sum has their shape; `over(dims)` also folds
/// dimensions of each sample. The first sample fixes the shape. Sums are kept in the sample's dtype, half
/// types in float32, integers and bool in int64, and mixed dtypes in the promoted one. Samples are read
/// immediately and not kept. After the first elementwise sample nothing is allocated, and small contiguous
/// CPU samples bypass the dispatcher.
class TORCHTAP_API Sum : public Total {
 public:
  explicit Sum(SumOptions options = {});
  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const Sum& other) { merge_from(other); }
  /// Replaces the state: `value` becomes the sum of all samples so far.
  void assign(const at::Tensor& value) { assign_sum(value); }
  /// The same reduction without samples.
  Sum fresh() const { return cleared(*this); }
};

}  // namespace torchtap::reductions
