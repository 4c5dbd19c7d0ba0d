#pragma once

/// Counts values in bins of equal width, whose range is fixed or grows with the data.

#include <torch/arg.h>

#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/loops.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>

namespace torchtap::reductions {

/// `HistogramOptions(64, -4, 4)` for a fixed range, `HistogramOptions(64)` for a growing one.
class TORCHTAP_API HistogramOptions : public RowOptions<HistogramOptions> {
 public:
  /// A range that grows with the data. Needs at least two bins.
  explicit HistogramOptions(std::int64_t bins) : bins_(bins) {}
  /// `bins` equal bins on [low, high].
  HistogramOptions(std::int64_t bins, double low, double high) : bins_(bins), low_(low), high_(high) {}

  /// Whether neither edge is given.
  bool growing() const noexcept { return !low_.has_value() && !high_.has_value(); }
  /// Number of bins.
  TORCH_ARG(std::int64_t, bins);
  /// The lower edge of a fixed range, which needs both.
  TORCH_ARG(std::optional<double>, low);
  /// The upper edge of a fixed range.
  TORCH_ARG(std::optional<double>, high);
};

/// Counts values in bins, per kept element or, with `over_all(true)`, over everything.
///
/// Samples are `[...]` of any real dtype and device. Bin i counts edges[i] <= x < edges[i+1]; the last bin of
/// a fixed range includes its upper edge, as in `torch.histc` and numpy. `underflow` and `overflow` count
/// values outside the range, infinities included; `nan` counts NaN. Values are compared in float64.
///
/// A growing range has bins of width 2^e with edges at multiples of 2^e, common to all kept elements. When a
/// value falls outside, e rises and neighbouring bins are added up. So e is always the least that covers the
/// data with the given number of bins (at least half of them are in use) and does not depend on the order of
/// the samples: counts and merges are exact. Infinities do not widen the range. Growing never synchronises
/// with a device.
class TORCHTAP_API Histogram : public Reduction {
 public:
  /// Throws `c10::ValueError` unless there is at least one bin (two if growing) and the range is finite and
  /// not empty.
  explicit Histogram(HistogramOptions options);

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const Histogram& other);

  /// `[..., bins]`, int64. All results throw `c10::ValueError` if there are no samples.
  at::Tensor counts() const;
  /// `[bins + 1]`, float64.
  at::Tensor edges() const;
  /// Number of values below the range, `[...]`, int64; for a growing range, of -Inf.
  at::Tensor underflow() const;
  /// Number of values above the range, `[...]`, int64; for a growing range, of Inf.
  at::Tensor overflow() const;
  /// Number of NaN, `[...]`, int64.
  at::Tensor nan() const;
  /// "counts", "edges", "underflow", "overflow" and "nan".
  core::Results results() const;
  /// "Histogram(64, -4, 4)" or "Histogram(64)".
  std::string describe() const;
  Histogram fresh() const;

 private:
  friend class cereal::access;
  void ask(Pass& pass) const override;
  bool ask_ledger(extend::Ledger& ledger) const override;
  bool combine_lines(const extend::Lines& lines) override;
  bool combine_all(const extend::Memory& all) override;
  void combine_rows(const Pass& pass, const extend::Rows& rows, c10::ArrayRef<Summary> kept) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    core::Elementwise elementwise(archive, !growing_);
    archive(intake_, bins_, growing_, low_, high_);
    elementwise.flatten();
    archive(slots_, min_, max_, exponent_, start_);
    if constexpr (Archive::is_loading::value) restored();
  }
  struct Grid;
  void validate() const;
  void restored();
  at::Tensor fixed_edges(const at::Device& device) const;
  void find_edges();
  void set_edges(std::vector<double> edges);
  at::Tensor column(std::int64_t slot) const;
  void start(const extend::Rows& rows);
  bool count_plain(const Pass& pass);
  bool count_lines(const extend::Lines& lines);
  bool count_rows(const Pass& pass, const extend::Rows& rows);
  bool count_on_device(const extend::Rows& rows);
  void count_any(const extend::Rows& rows);
  void coarsen(const Grid& grid);
  void cover(const Summary& all);
  bool cover_and_count_equal(const Summary& all);
  void grow(const at::Tensor& min, const at::Tensor& max);

  std::int64_t bins_;
  bool growing_;
  double low_, high_;
  extend::Owned slots_;                         // [kept elements, bins + 3]: bins, underflow, overflow, NaN
  extend::Owned min_, max_, exponent_, start_;  // of a growing range, without dimensions
  extend::Edges edges_;                         // on the CPU; set once edges exist and all are finite
};

}  // namespace torchtap::reductions
