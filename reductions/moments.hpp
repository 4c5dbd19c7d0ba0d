#pragma once

/// Computes the mean, variance, skewness and kurtosis of the samples in one pass.

#include <torch/arg.h>

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

/// `MomentsOptions().over({0}).unbiased(false)`.
class TORCHTAP_API MomentsOptions : public FoldOptions<MomentsOptions> {
  /// Whether to divide the variance by n - 1, as `torch::var` does, or by n.
  TORCH_ARG(bool, unbiased) = true;
  /// 4, or 2 for the mean and the variance only: half the state, and half the memory to update elementwise.
  TORCH_ARG(std::int64_t, order) = 4;
};

/// Mean, variance, skewness and kurtosis, elementwise or over rows, in one pass.
///
/// Samples are `[...]`, any numeric dtype and device, and the results have their shape; `over(dims)` also
/// folds dimensions of each sample. Central moments are kept in float64 and combined pairwise (Chan, Golub &
/// LeVeque 1983; Pébay 2008), so that no squares of an offset are subtracted. A mean has the 53 bits of
/// float64: the relative error of a variance is at most some 2^-52 |mean| / deviation, 2e-7 for an offset of
/// 10^9 deviations, however the stream is split. All results are float64. For long runs of float32 and half
/// types on the CPU, groups of sixteen powers are summed in float32; the relative error stays below 1e-6.
/// Complex samples have a complex mean and the variance of `torch::var` (the variance of the real part plus
/// the variance of the imaginary part), but no skewness or kurtosis.
class TORCHTAP_API Moments : public Reduction {
 public:
  /// Throws `c10::ValueError` unless the order is 2 or 4.
  explicit Moments(MomentsOptions options = {});

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const Moments& other);

  /// Sum over n. All results throw `c10::ValueError` if there are no samples.
  at::Tensor mean() const;
  /// Sum of squared deviations over n - 1, or n with `unbiased(false)`; NaN for 0 / 0.
  at::Tensor variance() const;
  /// g1 = m3 / m2^(3/2), with central moments over n (biased, as `scipy.stats.skew`); NaN for a constant.
  /// Throws `c10::TypeError` for complex samples, `c10::ValueError` for order 2.
  at::Tensor skewness() const;
  /// The excess g2 = m4 / m2^2 - 3, 0 for a normal distribution, with central moments over n (biased, as
  /// `scipy.stats.kurtosis`); NaN for a constant. Throws as `skewness`.
  at::Tensor kurtosis() const;
  /// Number of non-finite elements left out, int64, in the shape of the results.
  at::Tensor omitted() const { return intake_.omitted(); }
  /// "mean", "variance", and for real samples and order 4 "skewness", "kurtosis"; "omitted" under
  /// `NonFinite::omit`.
  core::Results results() const;
  /// "Moments", "Moments(biased, order=2)".
  std::string describe() const;
  Moments fresh() const;

 private:
  friend class cereal::access;
  std::optional<Needs> needs() const override { return Needs{/*moments=*/true, /*zeros=*/false}; }
  bool combine_lines(const detail::Lines& lines) override;
  bool combine_summaries(c10::ArrayRef<Summary> kept) override;
  void combine_rows(const Pass& pass, const detail::Rows& rows, c10::ArrayRef<Summary> kept) override;
  template <class Archive>
  void serialize(Archive& archive) {
    const auto version = core::state_version(archive, intake_.name(), 2);
    const core::Elementwise elementwise(archive);
    archive(intake_, unbiased_, mean_, m2_, m3_, m4_);
    if (version >= 2) {
      archive(order_);
    } else {
      order_ = 4;
    }
    if constexpr (Archive::is_loading::value) restored();
  }
  struct Part;
  bool fold_elementwise(const Pass& pass, const detail::Rows& rows);
  bool fold_on_device(const detail::Rows& rows);
  Part part_of(const detail::Rows& rows) const;
  void start(at::IntArrayRef sizes, at::TensorOptions where);
  void order_states();
  Part part() const;
  static Part combined(const Part& mine, const Part& other);
  bool combine_plain(const Part& other);
  void combine(const Part& other);
  void require_real(const char* what) const;
  void restored() const;

  bool unbiased_;
  std::int64_t order_;
  detail::Owned mean_, m2_, m3_,
      m4_;  // m_k: the sum of (x - mean)^k; m3 and m4 only for real samples and order 4
};

}  // namespace torchtap::reductions
