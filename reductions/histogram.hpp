#pragma once

#include <torch/arg.h>

#include <memory>
#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <vector>

namespace torchtap::reductions {

/// `HistogramOptions(64, -4, 4)` for a fixed range, `HistogramOptions(64)` for one that grows.
class TORCHTAP_API HistogramOptions : public RowOptions<HistogramOptions> {
 public:
  /// A range that grows with the data; at least two bins.
  explicit HistogramOptions(std::int64_t bins) : bins_(bins), growing_(true) {}
  /// `bins` equal bins on [low, high].
  HistogramOptions(std::int64_t bins, double low, double high)
      : bins_(bins), low_(low), high_(high), growing_(false) {}

  bool growing() const noexcept { return growing_; }
  TORCH_ARG(std::int64_t, bins);
  TORCH_ARG(double, low) = 0.0;
  TORCH_ARG(double, high) = 0.0;

 private:
  bool growing_;
};

/// Counts values in bins, for each kept element or, with `over_all(true)`, over everything.
///
/// Samples are `[...]` of any real dtype and device. Bin i counts edges[i] <= x < edges[i+1]; the last bin of
/// a fixed range counts its upper edge too, as `torch.histc` and numpy do. What lies outside is counted by
/// `underflow` and `overflow`, infinities included; NaN by `nan`. Values are compared in float64.
///
/// A growing range has bins of width 2^e, with edges at multiples of it, common to all kept elements. When a
/// value falls outside, e rises and pairs of bins are added up, so e is the least that covers the data with
/// the given number of bins (between half of them and all are in use), whatever the order of the samples:
/// counts are exact and merging is too. Infinities do not widen it. Growing waits for no device.
class TORCHTAP_API Histogram {
 public:
  /// Throws `c10::ValueError` unless there are bins (two if growing) and the range is finite and not empty.
  explicit Histogram(HistogramOptions options);

  /// Counts a sample. Throws `c10::ValueError` on another shape or device, `c10::TypeError` on complex,
  /// quantized or sparse tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// The three steps of an update that shares its pass over the sample, as those of a `Series` do.
  void ask(detail::Scan& scan) const;
  void check(const detail::Scan& scan) const;
  void update(const detail::Scan& scan);
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration or shape; the state is then unchanged.
  void merge(const Histogram& other);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// `[..., bins]`, int64. This and the others throw `c10::ValueError` if there are no samples.
  at::Tensor counts() const;
  /// `[bins + 1]`, float64.
  at::Tensor edges() const;
  /// Values below the range, `[...]`, int64; for a growing range, -Inf.
  at::Tensor underflow() const;
  /// Values above the range, `[...]`, int64; for a growing range, Inf.
  at::Tensor overflow() const;
  /// `[...]`, int64.
  at::Tensor nan() const;
  /// "counts", "edges", "underflow", "overflow" and "nan".
  core::Results results() const;
  /// "Histogram(64, -4, 4)" or "Histogram(64)".
  std::string describe() const;
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  bool commutative() const noexcept { return true; }
  Histogram fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, bins_, growing_, low_, high_, slots_, min_, max_, exponent_, start_);
    if constexpr (Archive::is_loading::value) restored();
  }

 private:
  struct Grid;
  void validate() const;
  void restored();
  void find_edges();
  at::Tensor column(std::int64_t slot) const;
  bool count_plain(const detail::Scan& scan);
  void count_any(const detail::Rows& rows);
  void coarsen(const Grid& grid);
  void grow(const at::Tensor& min, const at::Tensor& max);

  detail::Intake intake_;
  std::int64_t bins_;
  bool growing_;
  double low_, high_;
  detail::Owned slots_;                         // [kept elements, bins + 3]: bins, underflow, overflow, NaN
  detail::Owned min_, max_, exponent_, start_;  // of a growing range, without dimensions
  std::shared_ptr<const std::vector<double>>
      edges_;  // on the CPU, once there are any and while all are finite
};

}  // namespace torchtap::reductions
