#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/kernels.hpp>
#include <torchtap/reductions/options.hpp>

namespace torchtap::reductions::detail {

/// A contiguous sample viewed as [folded, kept, folded, kept]; missing dimensions have size 1.
struct TORCHTAP_API Layout {
  std::int64_t outer = 1, kept = 1, inner = 1, columns = 1;

  bool operator==(const Layout& other) const noexcept {
    return outer == other.outer && kept == other.kept && inner == other.inner && columns == other.columns;
  }
};

/// Edges of bins, ascending: bin i counts edges[i] <= x < edges[i + 1]; the last bin includes its upper edge.
using Edges = std::shared_ptr<const std::vector<double>>;

/// A request for one way of folding a sample, and its answer once `done`.
struct TORCHTAP_API Read {
  /// [kept, bins + 3]: bins, below, above, NaN.
  struct Counting {
    Edges edges;
    std::vector<std::int64_t> slots;
  };

  Layout layout;
  Needs needs;
  bool summarize = false;
  std::vector<Counting> countings;
  std::vector<Summary> kept;
  bool done = false;
};

/// One pass over a sample for several reductions: they ask first, then the sample is read once.
///
/// `Kernels` read strided CPU samples of float32, float64, float16 or bfloat16, in pieces that depend only on
/// the shape and are combined in order, so the number of threads does not change the result. There is no
/// answer for other samples, for foldings that no `Layout` expresses, and in a build without `Kernels`; use
/// ATen then.
class TORCHTAP_API Scan {
 public:
  explicit Scan(const at::Tensor& sample);

  const at::Tensor& sample() const noexcept { return sample_; }

  /// Whether the kernels can read the sample, at least elementwise.
  bool plain() const noexcept { return plain_; }

  /// Requests an answer, so that it is computed in the same pass as others.
  void ask(const Folding& folding, Needs needs);
  /// As `ask`, for all elements regardless of the folding.
  void ask_total(Needs needs);
  /// As `ask`, for counts in bins.
  void ask_bins(const Folding& folding, const Edges& edges);

  /// The requested summary of each kept element, in order; null if there is no answer. An elementwise folding
  /// has none.
  const std::vector<Summary>* answer(const Folding& folding) const;
  std::optional<Summary> answer_total() const;

  /// Adds the sample elementwise, as the `count`-th, to contiguous float64 tensors of its shape. Returns
  /// false and changes nothing if the kernels cannot read it.
  bool fold_moments(double count, at::Tensor& mean, at::Tensor& m2, at::Tensor& m3, at::Tensor& m4) const;

  /// Adds the number of elements in each of the bins, below, above and NaN to `slots`, [kept, bins + 3].
  /// Needs a pass of its own unless these bins were asked for. Returns false and changes nothing if there is
  /// no answer.
  bool count_bins(const Folding& folding, const Edges& edges, std::int64_t* slots) const;

 private:
  std::optional<Layout> layout(const Folding& folding) const;
  Read& request(const Layout& layout);
  Read* find(const std::optional<Layout>& layout) const;
  const Read& done(Read& read) const;

  const at::Tensor& sample_;
  bool plain_;
  at::Tensor contiguous_;            // the same elements
  std::vector<std::int64_t> order_;  // the sample's dimensions in their order in `contiguous_`
  mutable std::vector<Read> reads_;  // one for each way of folding
  std::optional<Needs> total_;
};

/// Calls `f(begin, end)` for parts of [0, units) on LibTorch's threads, or on the current thread if
/// `elements` is small.
TORCHTAP_API void parallel(std::int64_t units, std::int64_t elements,
                           const std::function<void(std::int64_t, std::int64_t)>& f);

/// An uninitialised CPU tensor.
TORCHTAP_API at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype);

/// `of(summary)` of each kept element, as a tensor of that shape whose dtype is the type returned.
template <class F>
at::Tensor tabulate(at::IntArrayRef kept, const std::vector<Summary>& summaries, const F& of) {
  using T = decltype(of(summaries.front()));
  at::Tensor table = empty(kept, c10::CppTypeToScalarType<T>::value);
  std::transform(summaries.begin(), summaries.end(), table.data_ptr<T>(), of);
  return table;
}

}  // namespace torchtap::reductions::detail
