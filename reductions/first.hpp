#pragma once

/// Keeps the first sample.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/one_tensor.hpp>

namespace torchtap::reductions {

/// `FirstOptions().over({0})`.
class TORCHTAP_API FirstOptions : public RowOptions<FirstOptions> {};

/// The first sample, or row under `over(dims)`, unchanged: its dtype, NaN included.
///
/// Later samples are checked and counted, but their elements are not read.
class TORCHTAP_API First : public OneTensor {
 public:
  explicit First(FirstOptions options = {});
  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const First& other);
  /// Replaces the state: `value` becomes the sample.
  void assign(const at::Tensor& value) { set_value(value, value.scalar_type()); }
  /// The same reduction without samples.
  First fresh() const { return cleared(*this); }

 private:
  bool combine_lines(const detail::Lines& /*lines*/) override { return true; }
  bool combine_all(const detail::Memory& /*all*/) override { return true; }
  void combine_rows(const Pass& pass, const detail::Rows& rows, c10::ArrayRef<Summary> kept) override;
};

}  // namespace torchtap::reductions
