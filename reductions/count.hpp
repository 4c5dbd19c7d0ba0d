#pragma once

/// Counts rows, elements, NaN, infinities and zeros.

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

/// `CountOptions().over({0})`.
class TORCHTAP_API CountOptions : public RowOptions<CountOptions> {};

/// Counts rows, elements, NaN, infinities and zeros over all samples.
///
/// Samples are `[...]` of any shape and any plain dtype. Their shapes may differ, since nothing is kept per
/// element. Counts stay on the device of the first sample.
class TORCHTAP_API Count : public Reduction {
 public:
  explicit Count(CountOptions options = {});

  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration differs, leaving the state unchanged.
  void merge(const Count& other);

  /// Samples, or rows under `over(dims)`.
  std::int64_t rows() const noexcept { return intake_.count(); }
  /// Number of elements over all samples.
  std::int64_t elements() const noexcept { return elements_; }
  /// `nan`, `inf` and `zeros` are int64 tensors without dimensions on the samples' device, 0 if there are no
  /// rows. A complex number counts as NaN or infinite if either part is.
  at::Tensor nan() const;
  /// Number of infinite elements.
  at::Tensor inf() const;
  /// Number of zeros.
  at::Tensor zeros() const;
  /// "rows", "elements", "nan", "inf" and "zeros": int64 tensors without dimensions. Empty before the
  /// first row, as of samples without any.
  core::Results results() const;
  Count fresh() const;

 private:
  friend class cereal::access;
  void ask(Pass& pass) const override;
  bool ask_ledger(detail::Ledger& ledger) const override;
  void fold_ledger(const detail::Ledger& ledger) override;
  void fold(const Pass& pass) override;
  void combine_rows(const Pass& pass, const detail::Rows& rows, c10::ArrayRef<Summary> kept) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, elements_, nan_, inf_, zeros_);
    if constexpr (Archive::is_loading::value) restored();
  }
  void add_kinds(const Pass& pass, const detail::Rows& rows);
  void restored() const;

  std::int64_t elements_ = 0;
  detail::Owned nan_, inf_, zeros_;
};

}  // namespace torchtap::reductions
