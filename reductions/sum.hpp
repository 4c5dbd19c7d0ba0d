#pragma once

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

/// What `Sum` and `Mean` share.
class TORCHTAP_API Total : public Reduction {
 public:
  /// The result, a copy. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// Number of non-finite elements left out, int64, in the shape of the result. Throws as `value`.
  at::Tensor omitted() const { return intake_.omitted(); }
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;

 protected:
  enum class Kind { sum, mean };

  Total(Kind kind, const char* name, detail::Folding folding);
  void merge_from(const Total& other);
  void assign_sum(const at::Tensor& value);
  void clear();

 private:
  friend class cereal::access;
  c10::ScalarType kept_type(c10::ScalarType dtype) const;
  void ask(Pass& pass) const override;
  void fold(const Pass& pass) override;
  bool fold_small(const Pass& pass) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, sum_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*sum_);
  }

  Kind kind_;
  detail::Owned sum_;
};

/// `SumOptions().over({0}).non_finite(NonFinite::omit)`.
class TORCHTAP_API SumOptions : public FoldOptions<SumOptions> {};
/// `MeanOptions().over({0}).non_finite(NonFinite::omit)`.
class TORCHTAP_API MeanOptions : public FoldOptions<MeanOptions> {};

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
  Sum fresh() const;
};

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
  Mean fresh() const;
};

}  // namespace torchtap::reductions
