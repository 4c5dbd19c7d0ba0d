#pragma once

#include <string>
#include <torchtap/reductions/intake.hpp>

namespace torchtap::reductions {

/// `SumOptions().over({0}).non_finite(NonFinite::omit)`.
class SumOptions : public FoldOptions<SumOptions> {};

/// The sum of the samples, `acc.add_(x)` of torch.
///
/// Samples are `[...]`, any numeric dtype and device, and the sum has their shape; `over(dims)` folds
/// dimensions of each sample too. The first sample fixes the shape that is kept. Sums are kept in the
/// sample's dtype, half types in float32, integers and bool in int64; a stream of several dtypes in the
/// promoted one. Samples are read at once and not kept. Nothing is allocated after the first elementwise
/// sample, and small contiguous CPU samples of float32 and float64 pass by the dispatcher.
class Sum {
 public:
  explicit Sum(SumOptions options = {});

  /// Adds a sample. Throws `c10::ValueError` on another shape or device, or a non-finite element under
  /// `NonFinite::raise`; `c10::TypeError` on quantized or sparse tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// The same if that takes no operation of ATen; else false, and nothing has changed.
  bool update_plain(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration or shape; the state is then unchanged.
  void merge(const Sum& other);
  /// Goes on from `value` as the sum of all samples so far.
  void assign(const at::Tensor& value);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The sum, a copy. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// How many non-finite elements were left out, int64 in the shape of the sum. Throws as `value`.
  at::Tensor omitted() const;
  /// "value", and "omitted" under `NonFinite::omit`.
  core::State state() const;
  std::string describe() const { return intake_.describe(); }
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  Sum fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(intake_, sum_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*sum_);
  }

 private:
  detail::Intake intake_;
  detail::Owned sum_;
};

}  // namespace torchtap::reductions
