#pragma once

/// Computes the exponential moving average of the samples.

#include <torch/arg.h>

#include <string>
#include <type_traits>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/reductions/one_tensor.hpp>

namespace torchtap::reductions {

/// `EMAOptions(0.99).over({0})`.
class TORCHTAP_API EMAOptions : public FoldOptions<EMAOptions> {
 public:
  /// Options with this decay.
  EMAOptions(double decay = 0.9) : decay_(decay) {}  // NOLINT: implicit, so that a decay can be passed alone
  /// Not of a bool: `EMAOptions().over_all()` of constant options asks whether all is folded.
  template <class Bool, class = std::enable_if_t<std::is_same_v<Bool, bool>>>
  EMAOptions(Bool) = delete;  // NOLINT: as above
  /// The weight of the past, in [0, 1): each sample weighs `decay` times as much as its successor.
  TORCH_ARG(double, decay);
};

/// The exponential moving average of the samples, elementwise or over rows.
///
/// With decay d and n samples, the value is the mean of all samples weighted by d^(n-1), ..., d, 1. The sum
/// starts from zero and is divided by 1 - d^n (the bias correction of Adam, Kingma & Ba 2015), so the first
/// value is the first sample. `merge` weighs this stream by d^(other's n), which gives exactly the average of
/// both streams in sequence. The state is float64 (complex128); results have the dtype of the samples,
/// float32 for half types, float64 for integers. Under `NonFinite::omit` an omitted element does not age the
/// earlier ones.
class TORCHTAP_API EMA : public OneTensor {
 public:
  /// Throws `c10::ValueError` unless the decay is in [0, 1).
  explicit EMA(EMAOptions options = {});

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const EMA& other);
  /// Replaces the state: `value` becomes the average of all samples so far.
  void assign(const at::Tensor& value);

  /// The average; NaN where every element was omitted. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const override;
  /// Number of non-finite elements left out, int64, in the shape of the value. Throws as `value`.
  at::Tensor omitted() const { return intake_.omitted(); }
  /// "EMA(0.9)".
  std::string describe() const;
  EMA fresh() const { return cleared(*this); }

 private:
  friend class cereal::access;
  bool ask_ledger(extend::Ledger& ledger) const override;
  void fold_ledger(const extend::Ledger& ledger) override;
  bool combine_lines(const extend::Lines& lines) override;
  bool combine_all(const extend::Memory& all) override;
  void combine_rows(const Pass& pass, const extend::Rows& rows, c10::ArrayRef<Summary> kept) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    const core::Elementwise elementwise(archive);
    archive(intake_, decay_, value_);
    if constexpr (Archive::is_loading::value) {
      intake_.check_restored(decay_ >= 0 && decay_ < 1);
      intake_.check_restored(*value_);
    }
  }

  double decay_;  // the state is the sum of (1 - d) d^(n - 1 - i) x_i
};

}  // namespace torchtap::reductions
