#pragma once

/// Tallies what number formats of low precision would cost.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

namespace detail {
struct FormatLoop;
}  // namespace detail

/// The formats that `Formats` knows: "e4m3", "e5m2", "bf16", "f16", "int8", "mxfp8", "nvfp4", which it has
/// unless others are given, "mxfp8_e5m2" and "mxfp4".
TORCHTAP_API std::vector<std::string> formats();

/// `FormatsOptions({"e4m3", "int8"}).scale("int8", 0.05).over({0, 2, 3})`.
class TORCHTAP_API FormatsOptions : public RowOptions<FormatsOptions> {
 public:
  /// The first seven of `formats()`.
  FormatsOptions();
  /// Formats by name; see `formats()`.
  explicit FormatsOptions(std::vector<std::string> formats);

  /// Divides numbers by `scale`, which is rounded to float32, before they are rounded to this format, which
  /// has to be among the formats and to have no scales of its own; 1 unless given. What `Formats` reports as
  /// "scale" of an earlier run lets the largest value just fit.
  FormatsOptions& scale(const std::string& format, double scale);

  /// The names.
  const std::vector<std::string>& formats() const noexcept { return formats_; }
  /// The scales that were given.
  const std::map<std::string, double>& scales() const noexcept { return scales_; }

 private:
  std::vector<std::string> formats_;
  std::map<std::string, double> scales_;
};

/// Tallies, per kept element or, with `over_all(true)`, over everything, what rounding the values to number
/// formats of low precision would do: the shares that become zero, become subnormal and overflow, and the
/// squared error.
///
/// - "e4m3", "e5m2": float8_e4m3fn and float8_e5m2 of OCP's 8-bit Floating Point (OFP8) 1.0.
/// - "bf16", "f16": bfloat16 and float16.
/// - "int8": whole numbers from -127 to 127.
/// - "mxfp8", "mxfp8_e5m2", "mxfp4": e4m3, e5m2 and e2m1 of OCP's Microscaling Formats (MX) 1.0. The scale
///   of each block of 32 is 2^(floor(log2(amax)) - emax), at least 2^-127.
/// - "nvfp4": e2m1 as NVIDIA's NVFP4 (arXiv 2509.25149). The scale of each block of 16 is amax / 6 in
///   float8_e4m3fn, times amax / (6 * 448) in float32 for each sample.
///
/// amax is the largest magnitude of a block or sample, emax the exponent of the largest number of the format.
/// Blocks lie along the sample's last dimension, and the last one of each row may be shorter; a block keeps
/// its elements together even where they belong to several kept elements. Values are multiplied by the
/// inverse of their scale, rounded to nearest, ties to even, and multiplied by the scale, in float32.
///
/// A value *underflows* if it is not zero and becomes zero, is *subnormal* if it becomes a number below the
/// least normal one, which has fewer bits, and *overflows* if the number next to it, as if there were no
/// largest one, would be beyond the largest: without saturation it becomes an infinity or NaN. The error is
/// that of a cast that saturates, to the largest number. Shares are of the finite values, zeros included; NaN
/// and infinities are counted apart, and are zeros for the scales of blocks.
///
/// Samples are `[...]` of any real dtype. float64 and integers become float32 first, as in PyTorch's casts to
/// these formats. Those on a device other than the CPU are copied, which waits for it; all results lie on the
/// CPU. Squared errors of up to 512 neighbours are summed in float32, with a relative error below 1e-6, their
/// sums in float64 and, over samples, without rounding, so that merging gives the same bits in any order.
/// Where the largest of these neighbours is below 1e-12 or above 5e17, all is float64, and takes twenty times
/// as long; so does a last dimension that is kept. A kept element has 112 bytes for itself and for each
/// format.
class TORCHTAP_API Formats : public Reduction {
 public:
  /// Throws `c10::ValueError` for an unknown format or a scale that is not between 2^-60 and 2^60.
  explicit Formats(FormatsOptions options = {});

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const Formats& other);

  /// The formats, in order.
  const std::vector<std::string>& formats() const noexcept { return names_; }

  /// For the values "zeros", "nan" and "infinities", how many there are, int64, "abs_max", the largest finite
  /// magnitude, float32, and "mean_square", of the finite values, float64. For each format, float64,
  /// "e4m3.underflow", "e4m3.subnormal" and "e4m3.overflow": shares of the finite values; "e4m3.mse": the
  /// mean squared error; "e4m3.sqnr": 10 log10(mean_square / mse), in dB, infinite without an error; and
  /// "e4m3.scale": abs_max / 448, the scale with which the largest value just fits, of formats without
  /// blocks. All are `[...]`, on the CPU; shares and means are NaN where there are no finite values.
  core::Results results() const;
  /// "Formats(e4m3, int8 / 0.05)".
  std::string describe() const;
  Formats fresh() const;

 private:
  friend class cereal::access;
  struct Shape;

  void ask(Pass& pass) const override;
  void fold(const Pass& pass) override;
  bool fold_small(const Pass& pass) override;
  void fold(const Shape& shape, float abs_max);
  void start(std::int64_t kept);
  /// Of the numbers themselves, and then of each format: counts, and sums of squares.
  std::int64_t* counts(std::int64_t kept) const;
  std::int32_t* sums(std::int64_t kept) const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, names_, scales_, counts_, sums_, abs_max_);
    if constexpr (Archive::is_loading::value) restored();
  }
  void restored();
  void set_loops();

  std::vector<std::string> names_;
  std::vector<double> scales_;
  std::shared_ptr<const std::vector<detail::FormatLoop>> loops_;
  bool asks_ = false;      // whether a format has a scale for each sample
  detail::Owned counts_;   // [kept elements, 3 + 3 formats], int64
  detail::Owned sums_;     // [kept elements, 1 + formats, ExactSum::kDigits], int32
  detail::Owned abs_max_;  // [kept elements], float32
};

/// What a format would cost, estimated from the counts of a `LogHistogram`, for formats without blocks.
struct TORCHTAP_API FormatCost {
  /// Shares of the finite values, as if those of a bin were spread evenly over it.
  double underflow = 0, subnormal = 0, overflow = 0;
  /// The share of the values in bins that a threshold cuts: each of the shares is off by no more.
  double bound = 0;
  /// The signal to noise ratio in dB, with values spread evenly over each bin; the exact one is at least
  /// `least_sqnr`.
  double sqnr = 0, least_sqnr = 0;
};
/// `histogram` are the results of a `LogHistogram`, whose kept elements are taken together. Throws
/// `c10::ValueError` if they are not, or the format is unknown or has blocks.
TORCHTAP_API FormatCost format_cost(const std::string& format, const core::Results& histogram,
                                    double scale = 1);
/// The scale with which the upper end of the last bin just fits; 1 if all values are zero. Throws as
/// `format_cost`.
TORCHTAP_API double largest_scale(const std::string& format, const core::Results& histogram);
/// The scale with the least squared error that `format_cost` estimates, among those from
/// `largest_scale` down to 1/64 of it, a quarter of an octave apart. Throws as `format_cost`.
TORCHTAP_API double best_scale(const std::string& format, const core::Results& histogram);

}  // namespace torchtap::reductions
