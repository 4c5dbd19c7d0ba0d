#pragma once

/// Computes the p-norm over the samples.

#include <torch/arg.h>

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

/// `NormOptions().p(1).over({0})`.
class TORCHTAP_API NormOptions : public FoldOptions<NormOptions> {
  /// The order: any positive number, or infinity for the largest magnitude.
  TORCH_ARG(double, p) = 2.0;
};

/// The p-norm over the samples, elementwise or over rows: (sum of |x|^p)^(1/p).
///
/// Samples are `[...]`, any numeric dtype and device; the norm has their shape and is real. Powers are summed
/// in float64, so float32 cannot overflow for p up to 8. The result has the dtype of the samples, float32 for
/// half types, float64 for integers.
class TORCHTAP_API Norm : public Reduction {
 public:
  /// Throws `c10::ValueError` unless p is positive.
  explicit Norm(NormOptions options = {});

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const Norm& other);

  /// The norm. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// Number of non-finite elements left out, int64, in the shape of the norm. Throws as `value`.
  at::Tensor omitted() const { return intake_.omitted(); }
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  /// "Norm(2)".
  std::string describe() const;
  Norm fresh() const;

 private:
  friend class cereal::access;
  void ask(Pass& pass) const override;
  bool ask_ledger(detail::Ledger& ledger) const override;
  void fold_ledger(const detail::Ledger& ledger) override;
  void fold(const Pass& pass) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    const core::Elementwise elementwise(archive);
    archive(intake_, p_, sum_);
    if constexpr (Archive::is_loading::value) {
      intake_.check_restored(p_ > 0);
      intake_.check_restored(*sum_);
    }
  }
  bool asks() const;
  double of(const Summary& one) const;
  void take(const at::Tensor& part);
  bool fold_small(const Pass& pass) override;

  double p_;
  detail::Owned sum_;  // sum of |x|^p, or the largest |x|; float64
};

}  // namespace torchtap::reductions
