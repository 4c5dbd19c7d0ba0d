#pragma once

/// Defines the common base of `Sum` and `Mean`.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/one_tensor.hpp>

namespace torchtap::reductions {

/// The common part of `Sum` and `Mean`.
class TORCHTAP_API Total : public OneTensor {
 public:
  at::Tensor value() const override;
  /// Number of non-finite elements left out, int64, in the shape of the result. Throws as `value`.
  at::Tensor omitted() const { return intake_.omitted(); }

 protected:
  /// The result: a sum or a mean.
  enum class Kind { sum, mean };

  Total(Kind kind, const char* name, detail::Folding folding);
  /// Merges another total's state.
  void merge_from(const Total& other);
  /// Replaces the state by a sum.
  void assign_sum(const at::Tensor& value);

 private:
  c10::ScalarType kept_type(c10::ScalarType dtype) const;
  std::optional<Needs> needs() const override { return Needs(); }
  bool combine_lines(const detail::Lines& lines) override;
  bool combine_all(const detail::Memory& all) override;
  bool combine_summaries(c10::ArrayRef<Summary> kept) override;
  void combine_rows(const Pass& pass, const detail::Rows& rows, c10::ArrayRef<Summary> kept) override;

  Kind kind_;
};

}  // namespace torchtap::reductions
