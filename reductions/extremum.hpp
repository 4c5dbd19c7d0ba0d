#pragma once

/// Defines the common base of `Min`, `Max` and `AbsMax`.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/one_tensor.hpp>

namespace torchtap::reductions {

/// The common part of `Min`, `Max` and `AbsMax`. Samples of several dtypes are promoted to one as
/// `torch.promote_types` has it, also where states are merged: with float16 the int64 100000 becomes
/// infinite.
class TORCHTAP_API Extremum : public OneTensor {
 public:
  /// Replaces the state: `value` becomes the extremum of all samples so far.
  void assign(const at::Tensor& value) { set_value(value, value.scalar_type()); }
  /// The extremum; NaN where every element was omitted. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const override;
  /// Number of non-finite elements left out, int64, in the shape of the value. Throws as `value`.
  at::Tensor omitted() const { return intake_.omitted(); }

 protected:
  /// Which extremum.
  using Kind = detail::Extreme;

  Extremum(Kind kind, const char* name, detail::Folding folding);
  /// Merges another extremum's state.
  void merge_from(const Extremum& other);

 private:
  std::optional<Needs> needs() const override { return Needs(); }
  bool combine_lines(const detail::Lines& lines) override;
  bool combine_all(const detail::Memory& all) override;
  bool combine_summaries(c10::ArrayRef<Summary> kept) override;
  void combine_rows(const Pass& pass, const detail::Rows& rows, c10::ArrayRef<Summary> kept) override;
  bool is_state_of_samples() const;
  at::Tensor of(const detail::Rows& rows) const;
  double of(const Summary& summary) const;
  void take(const at::Tensor& value);
  double identity() const;

  Kind kind_;
};

}  // namespace torchtap::reductions
