#pragma once

/// Counts values in bins whose width grows with the value, without a given range.

#include <torch/arg.h>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/statistics/detail/bit_table.hpp>

namespace torchtap::reductions {

/// `LogHistogramOptions().mantissa_bits(4).over_all(true)`.
class TORCHTAP_API LogHistogramOptions : public RowOptions<LogHistogramOptions> {
 public:
  LogHistogramOptions() = default;
  /// Options with so many bits.
  explicit LogHistogramOptions(std::int64_t mantissa_bits) : mantissa_bits_(mantissa_bits) {}

  /// Each octave, from one power of two to the next, has 2^bits bins of equal width. 0 to 7; with 7 each
  /// bfloat16 has its own bin.
  TORCH_ARG(std::int64_t, mantissa_bits) = 3;
};

/// Counts values in bins whose width grows with the value, per kept element or, with `over_all(true)`, over
/// everything. It needs no range: there are bins for all numbers, so any two histograms of the same
/// `mantissa_bits` can be merged, exactly, in any order.
///
/// A bin holds the numbers whose sign, exponent and upper bits of the mantissa are the same in float32, which
/// are read off and not computed. With m mantissa bits and low and high the magnitudes of its ends, a bin of
/// positive numbers counts low <= x < high, one of negative numbers low <= -x < high, and high = low * (1 +
/// 2^-m) at the beginning of each octave. Zeros (of either sign), NaN, and infinities of each sign are
/// counted apart.
///
/// Samples are `[...]` of any real dtype and device. float16, bfloat16 and float32 are exact. A float64 is
/// counted where its value lies, without being rounded to another bin first; beyond the range of float32 it
/// stays finite: the outermost bins, up to 2^128, also count whatever is larger, and the innermost, from 0 to
/// 2^(-126 - m), whatever is smaller and not zero. Integers are converted to float64.
///
/// Memory: 8 bytes for each count. One kept element has 2^(9 + m) counts, 32 KiB for 3 mantissa bits; so has
/// each of several on a device other than the CPU. On the CPU, several have counts only for octaves that came
/// in any of them: 64 bytes for an octave of one sign, 1.5 to 3 KiB for each element of normally distributed
/// samples. Files keep only the bins that are in use.
///
/// Histograms like this are HdrHistogram (Tene 2012) and, with merging and error bounds for quantiles,
/// DDSketch (Masson, Rim & Lee 2019); TensorBoard's have exponential bins, too.
class TORCHTAP_API LogHistogram : public Reduction {
 public:
  /// Throws `c10::ValueError` unless there are 0 to 7 mantissa bits.
  explicit LogHistogram(LogHistogramOptions options = {});

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const LogHistogram& other);

  /// `[..., bins]`, int64: the counts of the bins that are in use, that is those in which any kept element
  /// has a value, in ascending order. All results throw `c10::ValueError` if there are no samples.
  at::Tensor counts() const;
  /// `[bins]`, float64: the lower end of each bin in use.
  at::Tensor low() const;
  /// `[bins]`, float64: the upper end of each bin in use. A bin ends where its neighbour begins, if that is
  /// in use.
  at::Tensor high() const;
  /// Number of zeros, `[...]`, int64.
  at::Tensor zeros() const;
  /// Number of -Inf, `[...]`, int64.
  at::Tensor negative_infinity() const;
  /// Number of Inf, `[...]`, int64.
  at::Tensor positive_infinity() const;
  /// Number of NaN, `[...]`, int64.
  at::Tensor nan() const;

  /// The q-quantile, `[...]`, float64, of all values that are not NaN; NaN where there are none. It is
  /// interpolated linearly between neighbouring values as by `torch::quantile`, each taken for the middle of
  /// its bin.
  ///
  /// The middle of a bin is off by at most 2^-(m + 1) of the value: 6.25 % with 3 mantissa bits. So is a
  /// quantile whose two neighbouring values have the same sign; otherwise the bound refers to the larger
  /// magnitude of the two. Zeros and infinities are exact. Below 2^-126 the error is at most 2^(-127 - m),
  /// and of finite float64 of 2^128 and more there is no bound. Throws `c10::ValueError` if q is outside [0,
  /// 1] or there are no samples.
  at::Tensor quantile(double q) const;
  /// Several quantiles at once, `[q, ...]`.
  at::Tensor quantiles(const std::vector<double>& levels) const;

  /// "counts", "low", "high", "zeros", "negative_infinity", "positive_infinity" and "nan".
  core::Results results() const;
  /// "LogHistogram(3)".
  std::string describe() const;
  LogHistogram fresh() const;

 private:
  friend class cereal::access;
  struct Bins;

  void ask(Pass& pass) const override;
  bool ask_ledger(extend::Ledger& ledger) const override;
  bool combine_lines(const extend::Lines& lines) override;
  bool combine_all(const extend::Memory& all) override;
  void combine_rows(const Pass& pass, const extend::Rows& rows, c10::ArrayRef<Summary> kept) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    std::int64_t mantissa_bits = table_.bins().mantissa_bits;
    statistics::detail::BitTable::Part used;
    if constexpr (!Archive::is_loading::value) used = table_.used();
    archive(intake_, mantissa_bits, used.slots, used.counts);
    if constexpr (Archive::is_loading::value) restored(mantissa_bits, used);
  }
  void restored(std::int64_t mantissa_bits, const statistics::detail::BitTable::Part& used);
  Bins bins() const;
  at::Tensor column(const char* name, std::int64_t slot) const;

  statistics::detail::BitTable table_;
};

}  // namespace torchtap::reductions
