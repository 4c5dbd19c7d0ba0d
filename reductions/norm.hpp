#pragma once

/// Computes the p-norm over the samples.

#include <torch/arg.h>

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/one_tensor.hpp>

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
class TORCHTAP_API Norm : public OneTensor {
 public:
  /// Throws `c10::ValueError` unless p is positive.
  explicit Norm(NormOptions options = {});

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const Norm& other);

  /// The norm. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const override;
  /// Number of non-finite elements left out, int64, in the shape of the norm. Throws as `value`.
  at::Tensor omitted() const { return intake_.omitted(); }
  /// "Norm(2)".
  std::string describe() const;
  Norm fresh() const { return cleared(*this); }

 private:
  friend class cereal::access;
  std::optional<Needs> needs() const override;
  bool ask_ledger(detail::Ledger& ledger) const override;
  void fold_ledger(const detail::Ledger& ledger) override;
  bool combine_lines(const detail::Lines& lines) override;
  bool combine_all(const detail::Memory& all) override;
  bool combine_summaries(c10::ArrayRef<Summary> kept) override;
  void combine_rows(const Pass& pass, const detail::Rows& rows, c10::ArrayRef<Summary> kept) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    const core::Elementwise elementwise(archive);
    archive(intake_, p_, value_);
    if constexpr (Archive::is_loading::value) {
      intake_.check_restored(p_ > 0);
      intake_.check_restored(*value_);
    }
  }
  bool asks() const;
  double of(const Summary& one) const;
  void take(const at::Tensor& part);

  double p_;  // the state is the sum of |x|^p, or the largest |x|: float64
};

}  // namespace torchtap::reductions
