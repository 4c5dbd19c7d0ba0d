#pragma once

/// One pass over a sample that several reductions share.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/detail/pass_member.hpp>
#include <torchtap/reductions/detail/reader.hpp>
#include <torchtap/reductions/options.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions {

class Pass;

/// A reduction that shares one pass over a sample with others, say in a `Series`: first each says what it
/// needs to know of the sample, then the sample is read once, then each folds the answer in.
///
/// The reductions of this library derive from it. One of your own that needs only a `Summary` of each sample
/// derives from `FromSummary`; one that needs more derives from this class and overrides the three functions,
/// which may be private.
class TORCHTAP_API SharesPass : public core::detail::PassMember {
 protected:
  SharesPass() = default;
  SharesPass(const SharesPass&) = default;
  SharesPass(SharesPass&&) = default;
  SharesPass& operator=(const SharesPass&) = default;
  SharesPass& operator=(SharesPass&&) = default;
  virtual ~SharesPass() = default;

 private:
  friend class Pass;

  /// Says what `fold` will need.
  virtual void ask(Pass& pass) const = 0;
  /// Throws the error that `fold` would throw.
  virtual void check_sample(const Pass& pass) const = 0;
  /// Folds the sample in. If it throws, the state is unchanged.
  virtual void fold(const Pass& pass) = 0;
};

/// A small contiguous sample in the CPU's memory, which loops read faster than operations of ATen.
namespace detail {
struct Memory {
  c10::ScalarType type;
  const char* data;
  std::int64_t numel;
};
}  // namespace detail

/// One pass over a sample for several reductions: they ask first, then the sample is read once.
///
/// The kernels read strided CPU samples of float32, float64, float16 or bfloat16, in pieces that depend only
/// on the shape and are combined in order, so the number of threads does not change the result. Of other
/// samples, of foldings that they cannot express, and in a build without kernels, only small contiguous CPU
/// samples have an answer. The sample must outlive the pass.
class TORCHTAP_API Pass {
 public:
  explicit Pass(const at::Tensor& sample);
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// The sample itself.
  const at::Tensor& sample() const noexcept { return sample_; }

  /// The three steps of an update, for each member in turn: all ask, all are checked, all fold.
  void ask(const SharesPass& member) { member.ask(*this); }
  /// Throws the error that `fold_into` would throw.
  void check(const SharesPass& member) const { member.check_sample(*this); }
  /// Folds the sample into `member`.
  void fold_into(SharesPass& member) const { member.fold(*this); }

  /// Asks for a summary of all elements.
  void ask_total(Needs needs);
  /// The summary of all elements, which was asked for. Of samples that the kernels cannot read it is computed
  /// with operations of ATen, which synchronises with the sample's device. Throws `c10::TypeError` for a
  /// sample that is not of real numbers.
  Summary total() const;

  /// For the reductions of this library: whether the kernels can read the sample, at least elementwise.
  bool plain() const noexcept { return plain_; }
  /// The sample in memory, if it is small and contiguous; otherwise null.
  const detail::Memory* memory() const noexcept { return small_ ? &memory_ : nullptr; }
  /// Asks for a summary of each kept element. An elementwise folding has none.
  void ask(const detail::Folding& folding, Needs needs);
  /// Asks for counts in bins.
  void ask_bins(const detail::Folding& folding, const detail::Edges& edges);
  /// Asks for counts by the bits of the elements.
  void ask_bits(const detail::Folding& folding, detail::BitBins bins);
  /// The requested summary of each kept element, in order; empty if there is no answer.
  c10::ArrayRef<Summary> answer(const detail::Folding& folding) const;
  /// The requested summary of all elements, if the pass can compute it.
  std::optional<Summary> answer_total() const;
  /// Adds the sample elementwise, as the `count`-th, to contiguous float64 tensors of its shape. Returns
  /// false and changes nothing if the kernels cannot read it.
  bool fold_moments(double count, at::Tensor& mean, at::Tensor& m2, at::Tensor& m3, at::Tensor& m4) const;
  /// As above, without the third and fourth powers.
  bool fold_variance(double count, at::Tensor& mean, at::Tensor& m2) const;
  /// Adds the number of elements in each of the bins, below, above and NaN to `slots`, [kept, bins + 3].
  /// Needs a pass of its own unless these bins were asked for. Returns false and changes nothing if there is
  /// no answer.
  bool count_bins(const detail::Folding& folding, const detail::Edges& edges, std::int64_t* slots) const;
  /// The requested counts of each kept element; null if there is no answer. There are also answers for
  /// integers, and in a build without kernels.
  const std::vector<detail::SlotCounts>* count_bits(const detail::Folding& folding,
                                                    detail::BitBins bins) const;

 private:
  bool is_whole(const detail::Folding& folding) const noexcept;
  const Summary& whole() const;
  const at::Tensor& contiguous() const noexcept { return ordered_.defined() ? ordered_ : sample_; }
  std::optional<detail::Layout> layout(const detail::Folding& folding) const;
  detail::Read& request(const detail::Layout& layout);
  detail::Read* find(const std::optional<detail::Layout>& layout) const;
  const detail::Read& done(detail::Read& read) const;

  const at::Tensor& sample_;
  bool plain_ = false;
  bool has_bits_ = false;  // whether numbers can be counted by their bits; `plain_` implies it
  bool small_ = false;
  detail::Memory memory_{};
  at::Tensor ordered_;                       // the same elements, contiguous; undefined if the sample is
  std::vector<std::int64_t> order_;          // the sample's dimensions in their order in `ordered_`
  mutable std::vector<detail::Read> reads_;  // one for each way of folding
  std::optional<Needs> total_;
  // All elements of a small sample; these need no list.
  Needs whole_needs_;
  bool whole_asked_ = false;
  mutable std::optional<Summary> whole_;
};

namespace detail {

/// An uninitialised CPU tensor.
TORCHTAP_API at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype);

/// `of(summary)` of each kept element, as a tensor of that shape whose dtype is the type returned.
template <class F>
at::Tensor tabulate(at::IntArrayRef kept, c10::ArrayRef<Summary> summaries, const F& of) {
  using T = decltype(of(summaries.front()));
  at::Tensor table = empty(kept, c10::CppTypeToScalarType<T>::value);
  std::transform(summaries.begin(), summaries.end(), table.data_ptr<T>(), of);
  return table;
}

}  // namespace detail
}  // namespace torchtap::reductions
