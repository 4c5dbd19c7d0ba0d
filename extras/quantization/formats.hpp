#pragma once

/// Tallies the loss of rounding values to number formats of low precision.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::quantization {

namespace detail {
struct FormatLoop;
}  // namespace detail

/// The formats that `Formats` knows: "e4m3", "e5m2", "bf16", "f16", "int8", "mxfp8", "nvfp4", which it has
/// unless others are given, "mxfp8_e5m2" and "mxfp4".
TORCHTAP_API std::vector<std::string> format_names();

/// `FormatsOptions({"e4m3", "int8"}).scale("int8", 0.05).over({0, 2, 3})`.
class TORCHTAP_API FormatsOptions : public reductions::RowOptions<FormatsOptions> {
 public:
  /// The first seven of `format_names()`.
  FormatsOptions();
  /// Formats by name.
  explicit FormatsOptions(std::vector<std::string> formats) : formats_(std::move(formats)) {}

  /// Divides numbers by `scale`, which is rounded to float32, before they are rounded to this format, which
  /// has to be among the formats and to have no scales of its own; 1 unless given.
  FormatsOptions& scale(const std::string& format, double scale);

  /// The names.
  const std::vector<std::string>& formats() const noexcept { return formats_; }
  /// The scales that were given.
  const std::map<std::string, double>& scales() const noexcept { return scales_; }

 private:
  std::vector<std::string> formats_;
  std::map<std::string, double> scales_;
};

/// A reduction that tallies, per kept element or, with `over_all(true)`, over everything, the loss of
/// rounding values to number formats. extras/quantization/README.md has the formats, their scales and the
/// rules of rounding.
///
/// A value *underflows* if it is not zero and becomes zero, is *subnormal* if it becomes a number below the
/// least normal one, and *overflows* if the number next to it, as if there were no largest one, would be
/// beyond the largest. The error is that of a cast that saturates, to the largest number. Shares are of the
/// finite values, zeros included; NaN and infinities are counted apart, and are zeros for the scales of
/// blocks.
///
/// Samples are `[...]` of any real dtype, which become float32 first, as in PyTorch's casts to these formats.
/// Those on a device other than the CPU are copied, which waits for it; all results lie on the CPU. Blocks
/// lie along the last dimension, which has to be folded; `update` throws `c10::ValueError` otherwise. Squared
/// errors of up to 512 neighbours are summed in float32, with a relative error below 1e-6 (an error below
/// 1e-19 of the largest value counts as none), their sums in float64 and, over samples, without rounding, so
/// that merging gives the same bits in any order. A kept element has 112 bytes for itself and for each
/// format.
class TORCHTAP_API Formats : public reductions::Reduction {
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
  struct Form;

  void ask(reductions::Pass& pass) const override;
  void check_sample(const reductions::Pass& pass) const override;
  void fold(const reductions::Pass& pass) override;
  void tally(const float* x, const Form& form, float abs_max);
  void check_blocks(const at::Tensor& sample) const;
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
  bool has_blocks_ = false, asks_ = false;  // whether a format has scales of blocks, and for each sample
  reductions::extend::Owned counts_;        // [kept elements, 3 + 3 formats], int64
  reductions::extend::Owned sums_;          // [kept elements, 1 + formats, ExactSum::kDigits], int32
  reductions::extend::Owned abs_max_;       // [kept elements], float32
};

/// `reductions::parse` and `restore` know "formats" from now on: for a program that uses nothing else of the
/// library, which the linker leaves out then.
TORCHTAP_API void enable_formats();

/// The cost of a format without blocks, estimated from the counts of a `LogHistogram`, with the values of a
/// bin spread evenly over it.
struct TORCHTAP_API FormatCost {
  double underflow = 0, subnormal = 0, overflow = 0;  ///< shares of the finite values
  double bound = 0;  ///< the share of the values in bins that a threshold cuts: no other share is off by more
  double sqnr = 0;   ///< signal to noise ratio in dB
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

}  // namespace torchtap::quantization
