#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <torchtap/reductions/detail/kernels.hpp>
#include <torchtap/reductions/options.hpp>
#include <vector>

namespace torchtap::reductions::detail {

/// A contiguous sample as [folded, kept, folded, kept]; an extent of 1 where there is nothing.
struct Layout {
  std::int64_t outer = 1, kept = 1, inner = 1, columns = 1;

  bool operator==(const Layout& other) const noexcept {
    return outer == other.outer && kept == other.kept && inner == other.inner && columns == other.columns;
  }
};

/// Edges of bins, ascending: bin i counts edges[i] <= x < edges[i + 1], the last one its upper edge, too.
using Edges = std::shared_ptr<const std::vector<double>>;

/// What is wanted of one way of folding a sample, and once it is done, what was found.
struct Read {
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

/// One sample that several reductions want to know something of: they ask, then it is read once for all of
/// them.
///
/// Samples on the CPU, strided, float32, float64, float16 or bfloat16, are read by `Kernels`, in pieces that
/// depend on the shape alone and are put together in order, so that the number of threads changes nothing.
/// For all others, foldings that no `Layout` expresses, and in a build without `Kernels`, there is no answer:
/// ATen has to do.
class Scan {
 public:
  explicit Scan(const at::Tensor& sample);

  const at::Tensor& sample() const noexcept { return sample_; }

  /// Whether the kernels can read the sample, elementwise at least.
  bool plain() const noexcept { return plain_; }

  /// Says that an answer will be wanted, so that it comes from the same pass as others.
  void ask(const Folding& folding, Needs needs);
  /// As `ask` for all elements, whatever is folded.
  void ask_total(Needs needs);
  /// As `ask` for counts in bins.
  void ask_bins(const Folding& folding, const Edges& edges);

  /// For each kept element, in order, what has been asked for; null if there is no answer. An elementwise
  /// folding has none.
  const std::vector<Summary>* answer(const Folding& folding) const;
  std::optional<Summary> answer_total() const;

  /// Adds the sample elementwise, as the `count`-th, to contiguous float64 states of its shape; false, and
  /// nothing done, if the kernels cannot read it.
  bool fold_moments(double count, at::Tensor& mean, at::Tensor& m2, at::Tensor& m3, at::Tensor& m4) const;

  /// Adds to `slots`, [kept, bins + 3], how many elements are in each of the bins, below, above and NaN;
  /// false, and nothing done, if there is no answer. A pass of its own unless these bins were asked for.
  bool count_bins(const Folding& folding, const Edges& edges, std::int64_t* slots) const;

 private:
  std::optional<Layout> layout(const Folding& folding) const;
  Read& request(const Layout& layout);
  Read* find(const std::optional<Layout>& layout) const;
  const Read& done(Read& read) const;

  const at::Tensor& sample_;
  bool plain_;
  at::Tensor contiguous_;            // the same elements
  std::vector<std::int64_t> order_;  // the sample's dimensions as they lie in `contiguous_`
  mutable std::vector<Read> reads_;  // one for each way of folding
  std::optional<Needs> total_;
};

/// `f(begin, end)` for parts of [0, units) on LibTorch's threads; on this one alone unless there are many
/// `elements`.
void parallel(std::int64_t units, std::int64_t elements,
              const std::function<void(std::int64_t, std::int64_t)>& f);

/// On the CPU.
at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype);

/// `of(summary)` for each kept element, as a tensor of that shape and of the type returned.
template <class F>
at::Tensor tabulate(at::IntArrayRef kept, const std::vector<Summary>& summaries, const F& of) {
  using T = decltype(of(summaries.front()));
  at::Tensor table = empty(kept, c10::CppTypeToScalarType<T>::value);
  std::transform(summaries.begin(), summaries.end(), table.data_ptr<T>(), of);
  return table;
}

}  // namespace torchtap::reductions::detail
