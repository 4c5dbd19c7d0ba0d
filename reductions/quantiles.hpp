#pragma once

#include <torch/arg.h>

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/detail/random.hpp>
#include <vector>

namespace torchtap::reductions {

/// `QuantilesOptions().at({0.5, 0.999}).size(1024).over({0})`.
class TORCHTAP_API QuantilesOptions : public RowOptions<QuantilesOptions> {
 public:
  /// The quantiles that `state` holds.
  QuantilesOptions& at(std::vector<double> levels) {
    at_ = std::move(levels);
    return *this;
  }
  const std::vector<double>& at() const noexcept { return at_; }

  /// The k of the sketch: up to that many rows it is exact, beyond it keeps some 3k values for each kept
  /// element and its rank error falls as 1/k^0.9. At least 8.
  TORCH_ARG(std::int64_t, size) = 512;
  /// Of the sketch's own generator; the same seed and stream give the same result.
  TORCH_ARG(std::uint64_t, seed) = 0;

 private:
  std::vector<double> at_{0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0};
};

/// Quantiles of the samples in bounded memory, for each kept element: the KLL sketch (Karnin, Lang & Liberty
/// 2016), vectorised, all kept elements in step.
///
/// Samples are `[...]` of any real dtype and device, and a quantile has their shape, float32 or, for float64
/// and integers, float64. Up to `size` rows the answer is exact, interpolated linearly as `torch::quantile`
/// does; so are the smallest and the largest value (q = 0, q = 1) always. Beyond, `quantile(q)` is a value of
/// the stream whose rank is off by no more than `rank_error()` times the rows with probability 0.99, for each
/// single q and element (empirical constant of Apache DataSketches); nothing is promised about its distance
/// from the true value, nor, at that level, for all q at once. Of samples with many rows in long streams some
/// are chosen at random, which adds less than a hundredth to that error. NaN is left out and counted; the
/// error then still refers to all rows.
class TORCHTAP_API Quantiles {
 public:
  /// Throws `c10::ValueError` if `size` is below 8 or a level outside [0, 1].
  explicit Quantiles(QuantilesOptions options = {});

  /// Adds a sample. Throws `c10::ValueError` on another shape or device, `c10::TypeError` on complex,
  /// quantized or sparse tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// The three steps of an update that shares its pass over the sample, as those of a `Series` do.
  void ask(detail::Scan& scan) const;
  void check(const detail::Scan& scan) const;
  void update(const detail::Scan& scan);
  /// Afterwards as if this object had seen its stream and then `other`'s, within the stated error. Throws
  /// `c10::ValueError` on another size or shape; the state is then unchanged.
  void merge(const Quantiles& other);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The q-quantile, `[...]`; NaN where all was NaN. Throws `c10::ValueError` if q is outside [0, 1] or there
  /// are no samples.
  at::Tensor quantile(double q) const;
  /// Several at once, `[q, ...]`.
  at::Tensor quantiles(const std::vector<double>& levels) const;
  at::Tensor median() const { return quantile(0.5); }
  /// How many NaN were left out, `[...]`, int64.
  at::Tensor nan() const;
  /// The greatest error of a rank that is to be expected, as a fraction of `count()`; 0 while exact.
  double rank_error() const noexcept;
  /// Values kept for each element.
  std::int64_t retained() const noexcept;
  /// "quantiles" `[q, ...]` and "levels" `[q]` for the levels asked for in the options, and "nan".
  core::Results results() const;
  /// "Quantiles(512)".
  std::string describe() const;
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  bool commutative() const noexcept { return true; }
  Quantiles fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, size_, seed_, at_, random_, levels_, exact_, min_, max_, nan_);
    if constexpr (Archive::is_loading::value) restored();
  }

 private:
  std::int64_t capacity(std::size_t level) const;
  std::int64_t level_size(std::size_t level) const;
  void take_extrema(const at::Tensor& min, const at::Tensor& max, const at::Tensor& nan);
  template <class T>
  void insert_sorted(const at::Tensor& rows);
  void compress();
  void validate() const;
  void restored() const;

  detail::Intake intake_;
  std::int64_t size_;
  std::uint64_t seed_;
  std::vector<double> at_;
  detail::Random random_;
  // levels_[l] holds pieces [values, kept elements], each value standing for 2^l. Pieces are never changed in
  // place, so copies may share them.
  std::vector<std::vector<at::Tensor>> levels_;
  bool exact_ = true;
  detail::Owned min_, max_, nan_;  // [kept elements]
};

}  // namespace torchtap::reductions
