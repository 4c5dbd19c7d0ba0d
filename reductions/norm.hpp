#pragma once

#include <torch/arg.h>

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {

/// `NormOptions().p(1).over({0})`.
class TORCHTAP_API NormOptions : public FoldOptions<NormOptions> {
  /// The order: any positive number, or infinity for the largest magnitude.
  TORCH_ARG(double, p) = 2.0;
};

/// The p-norm over the samples, elementwise or over rows: (sum of |x|^p)^(1/p).
///
/// Samples are `[...]`, any numeric dtype and device; the norm has their shape and is real. Powers are summed
/// in float64, so float32 cannot overflow for p up to 8; the result is in the dtype of the samples, float32
/// for the half types, float64 for integers.
class TORCHTAP_API Norm {
 public:
  /// Throws `c10::ValueError` unless p is positive.
  explicit Norm(NormOptions options = {});

  /// Adds a sample. Throws `c10::ValueError` on another shape or device, or a non-finite element under
  /// `NonFinite::raise`; `c10::TypeError` on quantized or sparse tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// The three steps of an update that shares its pass over the sample, as those of a `Series` do.
  void ask(detail::Scan& scan) const;
  void check(const detail::Scan& scan) const;
  void update(const detail::Scan& scan);
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration or shape; the state is then unchanged.
  void merge(const Norm& other);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The norm. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// How many non-finite elements were left out, int64 in the shape of the norm. Throws as `value`.
  at::Tensor omitted() const;
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  /// "Norm(2)".
  std::string describe() const;
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  bool commutative() const noexcept { return true; }
  Norm fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, p_, sum_);
    if constexpr (Archive::is_loading::value) {
      intake_.check_restored(p_ > 0);
      intake_.check_restored(*sum_);
    }
  }

 private:
  bool asks() const;
  void fold(const at::Tensor& part);

  detail::Intake intake_;
  double p_;
  detail::Owned sum_;  // of |x|^p, or the largest |x|; float64
};

}  // namespace torchtap::reductions
