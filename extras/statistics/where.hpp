#pragma once

/// Applies a reduction to the rows that a mask chooses.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/any.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>

namespace torchtap::reductions {

/// Applies a reduction to the rows where a mask is true: `where("mask", Mean(MeanOptions().over({0})))` is
/// given `x.index({mask})`.
///
/// The mask is a bool tensor that `core::Context` names around the forward. Its shape is how the sample's
/// begins; a mask without dimensions chooses the whole sample. Results are the reduction's, and
/// "NAME.left_out", the number of rows that were false. A mask without a true row does not reach the
/// reduction.
///
/// A sample on a device stays there. The mask, on that device or on the CPU, is copied to the CPU, so each
/// update waits for the device. It copies the chosen rows there, unless they are all. Recorders with fused
/// kernels do neither, and record in replays of CUDA graphs, if the kernels serve the reduction and the
/// sample's first dimension is folded.
class TORCHTAP_API Where : public SharesPass {
 public:
  /// Throws `c10::ValueError` if the reduction uses the same name.
  Where(std::string mask, Any reduction);

  /// Throws `c10::ValueError` if the mask is missing, has another shape, or is neither on the sample's device
  /// nor on the CPU; `c10::TypeError` if it is not of bool; `c10::NotImplementedError` if the current stream
  /// of the sample's device captures a CUDA graph, where nothing may wait; and the reduction's errors. The
  /// state is unchanged then.
  void update(const at::Tensor& sample);
  /// Throws the error that `update` would throw for this sample. Changes nothing.
  void check(const at::Tensor& sample) const;
  /// Throws `c10::ValueError` if the masks have different names, and the reduction's errors.
  void merge(const Where& other);
  /// The reduction's own count.
  std::int64_t count() const { return reduction_.count(); }
  /// Number of rows that were false.
  std::int64_t left_out() const noexcept { return left_out_; }
  /// The results of the reduction and "NAME.left_out"; empty before the first sample.
  core::Results results() const;
  /// The wrapped reduction.
  const Any& inner() const& noexcept { return reduction_; }
  /// For a temporary: returns by value.
  Any inner() && { return std::move(reduction_); }
  /// "Where(mask, Mean)".
  std::string describe() const;
  /// Whether samples may come in any order, as the reduction says.
  bool commutative() const { return reduction_.commutative(); }
  /// The mask's name, and the names that the reduction uses.
  std::vector<std::string> companions() const;
  Where fresh() const { return {name_, reduction_.fresh()}; }

  /// Writes configuration and state, for cereal.
  void save(core::OutputArchive& archive) const;
  /// Reads configuration and state, for cereal.
  void load(core::InputArchive& archive);

 private:
  friend struct core::Access;
  std::string recipe() const;
  template <class F>
  std::int64_t with_rows(const at::Tensor& sample, const F& f) const;
  bool ask_ledger(extend::Ledger& ledger) const override;
  void fold_ledger(const extend::Ledger& ledger) override;
  void ask(Pass& /*pass*/) const override {}
  void check_sample(const Pass& pass) const override { check(pass.sample()); }
  void fold(const Pass& pass) override { update(pass.sample()); }

  std::string name_;
  Any reduction_;
  std::int64_t left_out_ = 0;
};

/// Applies `reduction`, or a callable that folds two tensors, to the rows where the mask is true.
inline Where where(std::string mask, Any reduction) {
  return {std::move(mask), std::move(reduction)};
}

}  // namespace torchtap::reductions
