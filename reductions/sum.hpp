#pragma once

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {
namespace detail {

/// What `Sum` and `Mean` have in common.
class TORCHTAP_API Total {
 public:
  /// Adds a sample. Throws `c10::ValueError` on another shape or device, or a non-finite element under
  /// `NonFinite::raise`; `c10::TypeError` on quantized or sparse tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// The same if that takes no operation of ATen; else false, and nothing has changed.
  bool update_plain(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// The three steps of an update that shares its pass over the sample, as those of a `Series` do.
  void ask(Scan& scan) const;
  void check(const Scan& scan) const;
  void update(const Scan& scan);
  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The result, a copy. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// How many non-finite elements were left out, int64 in the shape of the result. Throws as `value`.
  at::Tensor omitted() const;
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  std::string describe() const { return intake_.describe(); }
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  bool commutative() const noexcept { return true; }

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, sum_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*sum_);
  }

 protected:
  enum class Kind { sum, mean };

  Total(Kind kind, const char* name, Folding folding);
  void merge_from(const Total& other);
  void assign_sum(const at::Tensor& value);
  void clear();

 private:
  c10::ScalarType kept_type(c10::ScalarType dtype) const;

  Kind kind_;
  Intake intake_;
  Owned sum_;
};

}  // namespace detail

/// `SumOptions().over({0}).non_finite(NonFinite::omit)`.
class TORCHTAP_API SumOptions : public FoldOptions<SumOptions> {};
/// `MeanOptions().over({0}).non_finite(NonFinite::omit)`.
class TORCHTAP_API MeanOptions : public FoldOptions<MeanOptions> {};

/// The sum of the samples, `acc.add_(x)` of torch.
///
/// Samples are `[...]`, any numeric dtype and device, and the sum has their shape; `over(dims)` folds
/// dimensions of each sample too. The first sample fixes the shape that is kept. Sums are kept in the
/// sample's dtype, half types in float32, integers and bool in int64; a stream of several dtypes in the
/// promoted one. Samples are read at once and not kept. Nothing is allocated after the first elementwise
/// sample, and small contiguous CPU samples of float32 and float64 pass by the dispatcher.
class TORCHTAP_API Sum : public detail::Total {
 public:
  explicit Sum(SumOptions options = {});
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration or shape; the state is then unchanged.
  void merge(const Sum& other) { merge_from(other); }
  /// Goes on from `value` as the sum of all samples so far.
  void assign(const at::Tensor& value) { assign_sum(value); }
  Sum fresh() const;
};

/// The arithmetic mean of the samples, elementwise or over rows.
///
/// Samples are `[...]`, any numeric dtype and device, and the mean has their shape; `over(dims)` folds
/// dimensions of each sample too. The sum is kept in float64 (complex128), so that long streams of float32
/// stay exact; the mean is given in the dtype of the samples, float32 for the half types, float64 for
/// integers. Under `NonFinite::omit` each element has its own denominator, and one that was never finite is
/// NaN.
class TORCHTAP_API Mean : public detail::Total {
 public:
  explicit Mean(MeanOptions options = {});
  /// As `Sum::merge`.
  void merge(const Mean& other) { merge_from(other); }
  Mean fresh() const;
};

}  // namespace torchtap::reductions
