#pragma once

/// Estimates quantiles in bounded memory with the KLL sketch.

#include <torch/arg.h>

#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/statistics/detail/random.hpp>

namespace torchtap::reductions {

/// `QuantilesOptions().at({0.5, 0.999}).k(1024).over({0})`.
class TORCHTAP_API QuantilesOptions : public RowOptions<QuantilesOptions> {
 public:
  /// The quantiles that `results` returns.
  QuantilesOptions& at(std::vector<double> levels) {
    at_ = std::move(levels);
    return *this;
  }
  const std::vector<double>& at() const& noexcept { return at_; }
  /// For a temporary: returns by value.
  std::vector<double> at() && { return std::move(at_); }

  /// The k of the sketch. It is exact up to k rows; beyond that it keeps about 3k values per kept element,
  /// up to k more of all together, and its rank error falls as 1/k^0.9. At least 8.
  TORCH_ARG(std::int64_t, k) = 512;
  /// Seed of the sketch's own generator; the same seed and stream give the same result.
  TORCH_ARG(std::uint64_t, seed) = 0;

 private:
  std::vector<double> at_{0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0};
};

}  // namespace torchtap::reductions

namespace torchtap::statistics::detail {

/// Rows of kept elements, appended one after the other to memory that is reserved.
class TORCHTAP_API Level {
 public:
  std::int64_t rows() const noexcept { return used_; }
  /// [rows, kept elements]; shares the memory. There are rows.
  at::Tensor held() const;
  bool has_room(std::int64_t count) const noexcept { return places_ && used_ + count <= places_->size(0); }
  /// Makes room for `count` more rows of `kept` elements. If it has to grow for them, it grows further: up to
  /// `wanted` in all, or by a quarter.
  void reserve(std::int64_t count, std::int64_t wanted, std::int64_t kept, const at::TensorOptions& options);
  /// Gives back what is beyond `wanted` rows.
  void shrink(std::int64_t wanted);
  /// Appends rows [n, kept elements] of any strides, dtype and device, for which there is room.
  void append(const at::Tensor& rows);
  /// Row `row` in the CPU's memory; the one behind the last is there if there is room for it.
  template <class T>
  T* row(std::int64_t row) {
    return static_cast<T*>(places_->data_ptr()) + row * places_->size(1);
  }
  /// Changes the number of rows: forgets the last ones, or counts rows that were written behind them.
  void resize(std::int64_t rows) noexcept { used_ = rows; }
  void convert(c10::ScalarType dtype);

 private:
  void move_to(std::int64_t places, std::int64_t kept, const at::TensorOptions& options);

  reductions::extend::Owned places_;  // [rows and some more, kept elements]
  std::int64_t used_ = 0;
};

}  // namespace torchtap::statistics::detail

namespace torchtap::reductions {

/// Quantiles of the samples in bounded memory, per kept element: the KLL sketch (Karnin, Lang & Liberty
/// 2016), vectorised over all kept elements.
///
/// Samples are `[...]` of any real dtype and device. A quantile has their shape and is float32, or float64
/// for float64 and integers. Up to `size` rows it is exact, interpolated linearly as by `torch::quantile`;
/// the minimum and maximum (q = 0, q = 1) are always exact. Beyond that, `quantile(q)` is a value of the
/// stream whose rank is off by at most `rank_error()` times the rows with probability 0.99, for each single q
/// and element (empirical constant of Apache DataSketches). There is no bound on its distance from the true
/// value, nor, at that level, for all q at once. In long streams, samples with many rows are subsampled at
/// random, which adds less than a hundredth to that error. NaN is left out and counted; the error still
/// refers to all rows.
class TORCHTAP_API Quantiles : public Reduction {
 public:
  /// Throws `c10::ValueError` if `size` is below 8 or a level is outside [0, 1].
  explicit Quantiles(QuantilesOptions options = {});

  /// Merges `other` as if its samples had followed this object's, within the stated error. Throws
  /// `c10::ValueError` if the size or shape differs, leaving the state unchanged.
  void merge(const Quantiles& other);

  /// The q-quantile, `[...]`; NaN where all values were NaN. Throws `c10::ValueError` if q is outside [0, 1]
  /// or there are no samples.
  at::Tensor quantile(double q) const;
  /// Several quantiles at once, `[q, ...]`.
  at::Tensor quantiles(const std::vector<double>& levels) const;
  /// The 0.5-quantile.
  at::Tensor median() const { return quantile(0.5); }
  /// Number of NaN left out, `[...]`, int64.
  at::Tensor nan() const;
  /// The bound on the rank error (probability 0.99) as a fraction of `count()`; 0 while exact.
  double rank_error() const noexcept;
  /// Number of values kept per element.
  std::int64_t retained() const noexcept;
  /// "quantiles" `[q, ...]` and "levels" `[q]` for the levels in the options, and "nan".
  core::Results results() const;
  /// "Quantiles(512)".
  std::string describe() const;
  Quantiles fresh() const;

 private:
  friend class cereal::access;
  void ask(Pass& pass) const override;
  bool combine_lines(const extend::Lines& lines) override;
  bool combine_all(const extend::Memory& all) override;
  void combine_rows(const Pass& pass, const extend::Rows& rows, c10::ArrayRef<Summary> kept) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    auto pieces = this->pieces();
    archive(intake_, k_, seed_, at_, random_, pieces, exact_, min_, max_, nan_);
    if constexpr (Archive::is_loading::value) restored(pieces);
  }
  std::vector<std::vector<at::Tensor>> pieces() const;
  std::int64_t capacity(std::size_t level) const;
  void reserve(std::size_t level, std::int64_t count);
  void append(std::size_t level, const at::Tensor& rows);
  void* end();
  bool takes(std::int64_t rows, c10::ScalarType type) const;
  void take_extrema(const at::Tensor& min, const at::Tensor& max, const at::Tensor& nan);
  template <class T>
  void insert_sorted(const at::Tensor& rows);
  void thins_out(const at::Tensor& rows);
  void compress();
  bool halve_pieces(std::size_t level);
  void halve(std::size_t level);
  void validate() const;
  void restored(const std::vector<std::vector<at::Tensor>>& pieces);

  std::int64_t k_;
  std::uint64_t seed_;
  std::vector<double> at_;
  statistics::detail::Random random_;
  std::vector<statistics::detail::Level>
      levels_;  // each value of level l stands for 2^l rows; all have the dtype of the extrema
  std::vector<std::int64_t> capacities_;  // of the levels; computed again when their number changes
  bool exact_ = true;
  extend::Owned min_, max_, nan_;  // [kept elements]
};

}  // namespace torchtap::reductions
