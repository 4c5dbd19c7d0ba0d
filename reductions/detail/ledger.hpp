#pragma once

/// Declares `Ledger`, what reductions ask about samples that were added up elsewhere: on a device.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/detail/answers.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/extend/bit_bins.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions {

class SharesPass;

namespace detail {

/// Finds the mask of this name for a sample.
using MaskOf = at::Tensor (*)(const std::string& name, const at::Tensor& sample);

/// Samples of one reduction, or of all members of a series, that are added up before it takes them in.
///
/// Reductions ask for what they need, as they ask a `Pass`. When the samples are taken, they answer as one
/// large sample of the CPU would.
class TORCHTAP_API Ledger : public Answers {
 public:
  virtual ~Ledger() = default;

  /// Takes only the rows that the companion of this name, as `of` finds it, chooses. False if the ledger
  /// serves others, too.
  virtual bool choose(const std::string& mask, MaskOf of) = 0;
  /// Says that several reductions ask.
  virtual void share() noexcept = 0;

  // What reductions ask for. False if their way of folding cannot be served: elementwise, or with an error
  // for what is not finite.
  virtual bool ask(const Intake& intake, Needs needs) = 0;
  /// A summary of all elements, and the number of rows.
  virtual bool ask_all(const Intake& intake) = 0;
  virtual bool ask_bins(const Intake& intake, const std::vector<double>& edges) = 0;
  virtual bool ask_bits(const Intake& intake, extend::BitBins bins) = 0;
  /// (1 - decay) times the sum of all rows, each times decay to the power of the rows behind it.
  virtual bool ask_decay(const Intake& intake, double decay) = 0;
  /// The sum of the magnitudes of finite elements, each to this power.
  virtual bool ask_power(const Intake& intake, double power) = 0;

  // The answers, while samples are settled.
  /// A tensor with the dtype and as many rows as all samples have, for checks of its shape. Its elements are
  /// not to be read.
  virtual at::Tensor as_one(const Folding& folding) const = 0;
  bool count_bins(const Folding& folding, const Edges& edges, std::int64_t* slots) const final;
  const std::vector<SlotCounts>* count_bits(const Folding& folding, BitBins bins) const final;
  /// [kept, bins + 3]: bins, below, above, NaN.
  virtual c10::ArrayRef<std::int64_t> bins(const Folding& folding,
                                           const std::vector<double>& edges) const = 0;
  virtual const std::vector<extend::SlotCounts>& bits(const Folding& folding, extend::BitBins bins) const = 0;
  /// [kept], float64.
  virtual at::Tensor decayed(const Folding& folding, double decay) const = 0;
  virtual at::Tensor powers(const Folding& folding, double power) const = 0;
  // For those who asked for all: a summary of all elements, and how many elements and rows there are.
  virtual Summary total() const = 0;
  virtual std::int64_t elements() const = 0;
  virtual std::int64_t rows(const Folding& folding) const = 0;
  /// Number of elements of masks that were false.
  virtual std::int64_t left_out() const noexcept = 0;
  /// A tensor of the shape and dtype of the last sample. Its elements are not to be read.
  virtual at::Tensor last() const = 0;

 protected:
  /// Has a reduction ask for what it needs; false if it needs each sample.
  bool asked_by(const SharesPass& reduction);
  /// Folds the samples into a reduction without samples.
  void fold_into(SharesPass& reduction) const;
};

}  // namespace detail
}  // namespace torchtap::reductions
