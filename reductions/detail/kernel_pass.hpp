#pragma once

/// Answers the requests of the library's reductions about a sample with the kernels, in one pass.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/DimVector.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/fast/memory.hpp>
#include <torchtap/reductions/fast/reader.hpp>
#include <torchtap/reductions/options.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions {

class Pass;

namespace detail {

class Ledger;

/// One pass of the kernels over a sample, as part of a `Pass`.
///
/// The kernels read strided CPU samples of float32, float64, float16 or bfloat16, in pieces that depend only
/// on the shape and are combined in order, so the number of threads does not change the result. For other
/// samples, for foldings that they cannot express, and in a build without kernels, only small contiguous CPU
/// samples have an answer.
///
/// A pass over chosen rows reads them where they lie if the kernels can; for all else they are copied side by
/// side. Pieces depend only on the shape, so that the number of threads makes no difference.
class TORCHTAP_API KernelPass {
 public:
  KernelPass(const KernelPass&) = delete;
  KernelPass& operator=(const KernelPass&) = delete;

  /// The sample. Chosen rows become a tensor here, when it is first asked for.
  const at::Tensor& sample() const { return chosen() == nullptr ? source_ : gathered(); }
  at::IntArrayRef sizes() const {
    return chosen() == nullptr ? source_.sizes() : at::IntArrayRef(chosen()->sizes);
  }
  std::int64_t numel() const noexcept { return numel_; }
  /// The dtype of a strided sample on the CPU that has elements; otherwise undefined.
  c10::ScalarType type() const noexcept { return type_; }
  /// Asks for a summary of all elements.
  void ask_total(Needs needs);
  /// The requested summary of all elements, by operations of ATen if the kernels cannot compute it.
  Summary total() const;

  /// Whether the kernels can read the sample, at least elementwise.
  bool plain() const noexcept { return plain_; }
  /// Whether the sample is small, contiguous and of numbers that loops read.
  bool small() const noexcept { return small_; }
  /// A small sample in memory; otherwise null.
  const Memory* memory() const {
    if (!small_) return nullptr;
    if (memory_.data == nullptr) (void)sample();
    return &memory_;
  }
  /// The places of chosen rows that are no neighbours; null otherwise, or once they were copied.
  const Scattered* scattered() const noexcept {
    const Chosen* const chosen = this->chosen();
    return memory_.data == nullptr && chosen != nullptr && chosen->where.data != nullptr ? &chosen->where
                                                                                         : nullptr;
  }
  /// Asks for a summary of each kept element. An elementwise folding has none.
  void ask(const Folding& folding, Needs needs);
  /// Asks for counts in bins.
  void ask_bins(const Folding& folding, const Edges& edges);
  /// Asks for counts by the bits of the elements.
  void ask_bits(const Folding& folding, BitBins bins);
  /// The requested summary of each kept element, in order; empty if there is no answer.
  c10::ArrayRef<Summary> answer(const Folding& folding) const;
  /// The requested summary of all elements, if the pass can compute it.
  std::optional<Summary> answer_total() const;
  /// Adds the sample elementwise, as the `count`-th, to dense float64 tensors of its shape, which may get the
  /// order in memory of the sample. Returns false and changes nothing if the kernels cannot read it.
  bool fold_moments(double count, at::Tensor& mean, at::Tensor& m2, at::Tensor& m3, at::Tensor& m4) const;
  /// As above, without the third and fourth powers.
  bool fold_variance(double count, at::Tensor& mean, at::Tensor& m2) const;
  /// Adds the number of elements in each of the bins, below, above and NaN to `slots`, [kept, bins + 3].
  /// Needs a separate pass unless these bins were asked for. Returns false and changes nothing if there is no
  /// answer.
  bool count_bins(const Folding& folding, const Edges& edges, std::int64_t* slots) const;
  /// The requested counts of each kept element; null if there is no answer. There are also answers for
  /// integers, and in a build without kernels.
  const std::vector<SlotCounts>* count_bits(const Folding& folding, BitBins bins) const;

 protected:
  explicit KernelPass(const at::Tensor& sample);
  /// A pass over ascending rows of a contiguous sample on the CPU.
  KernelPass(const KernelPass& whole, c10::ArrayRef<std::int64_t> rows);
  /// A pass over the samples of a ledger, for which `like` stands.
  KernelPass(const at::Tensor& like, const Ledger& ledger);
  ~KernelPass() = default;

 private:
  bool is_whole(const Folding& folding) const noexcept;
  bool total_of_reads() const noexcept;
  const Summary& whole() const;
  const at::Tensor& gathered() const;
  void put_in_order();
  const at::Tensor& contiguous() const {
    return seldom_ && seldom_->ordered.defined() ? seldom_->ordered : sample();
  }
  at::Tensor beside(std::initializer_list<at::Tensor*> states) const;
  void read(Read& read) const;
  std::optional<Layout> layout(const Folding& folding) const;
  Read& request(const Layout& layout);
  Read* find(const std::optional<Layout>& layout) const;
  const Read& done(Read& read) const;

  /// Rows of the sample of another pass.
  struct Chosen {
    c10::DimVector sizes;
    Scattered where;
    at::Tensor gathered;  // once they are asked for
  };

  // Most passes over small samples do not need it, and then neither make nor destroy it.
  struct Seldom {
    std::optional<Chosen> chosen;
    at::Tensor ordered;               // the same elements, contiguous; undefined if the sample is
    std::vector<std::int64_t> order;  // the sample's dimensions in their order in `ordered`
    std::vector<Read> reads;          // one for each way of folding
    const Ledger* ledger = nullptr;   // which has the answers
  };
  Seldom& seldom() const { return seldom_ ? *seldom_ : seldom_.emplace(); }
  Chosen* chosen() const noexcept { return seldom_ && seldom_->chosen ? &*seldom_->chosen : nullptr; }
  c10::ArrayRef<std::int64_t> order_of_dims() const noexcept {
    return seldom_ ? c10::ArrayRef<std::int64_t>(seldom_->order) : c10::ArrayRef<std::int64_t>();
  }
  const Ledger* ledger() const noexcept { return seldom_ ? seldom_->ledger : nullptr; }
  bool no_reads() const noexcept { return !seldom_ || seldom_->reads.empty(); }

  const at::Tensor& source_;  // the sample, or the tensor that rows are chosen from
  std::int64_t numel_ = 0;
  c10::ScalarType type_ = c10::ScalarType::Undefined;
  bool plain_ = false;
  bool has_bits_ = false;  // whether numbers can be counted by their bits; `plain_` implies it
  bool small_ = false;
  mutable Memory memory_{};  // of a contiguous sample; without data while its rows are scattered
  std::optional<Needs> total_;
  // All elements of a small sample; these need no list.
  Needs whole_needs_;
  bool whole_asked_ = false;
  mutable std::optional<Summary> whole_;
  mutable std::optional<Seldom> seldom_;
};

/// The kernels' part of a pass.
KernelPass& kernels_of(Pass& pass) noexcept;
const KernelPass& kernels_of(const Pass& pass) noexcept;

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
