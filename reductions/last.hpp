#pragma once

/// Keeps the last sample.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/one_tensor.hpp>

namespace torchtap::reductions {

/// `LastOptions().over({0})`.
class TORCHTAP_API LastOptions : public RowOptions<LastOptions> {};

/// The last sample, or row under `over(dims)`, unchanged: its dtype, NaN included.
class TORCHTAP_API Last : public OneTensor {
 public:
  explicit Last(LastOptions options = {});
  /// As `First::merge`.
  void merge(const Last& other);
  /// Replaces the state: `value` becomes the sample.
  void assign(const at::Tensor& value) { set_value(value, value.scalar_type()); }
  /// The same reduction without samples.
  Last fresh() const { return cleared(*this); }

 private:
  bool combine_lines(const detail::Lines& lines) override;
  bool combine_all(const detail::Memory& all) override;
  void combine_rows(const Pass& pass, const detail::Rows& rows, c10::ArrayRef<Summary> kept) override;
};

}  // namespace torchtap::reductions
