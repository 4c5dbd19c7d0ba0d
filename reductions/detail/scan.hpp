#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <torchtap/reductions/detail/summary.hpp>
#include <torchtap/reductions/options.hpp>
#include <vector>

namespace torchtap::reductions::detail {

struct Bins;

/// A contiguous sample as [folded, kept, folded, kept]; an extent of 1 where there is nothing.
struct Layout {
  std::int64_t outer = 1, kept = 1, inner = 1, columns = 1;

  bool operator==(const Layout& other) const noexcept {
    return outer == other.outer && kept == other.kept && inner == other.inner && columns == other.columns;
  }
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

  /// For each kept element, in order, what has been asked for; null if there is no answer. An elementwise
  /// folding has none.
  const std::vector<Summary>* answer(const Folding& folding) const;
  std::optional<Summary> answer_total() const;

  /// Adds the sample elementwise, as the `count`-th, to contiguous float64 states of its shape; false, and
  /// nothing done, if the kernels cannot read it.
  bool fold_moments(double count, at::Tensor& mean, at::Tensor& m2, at::Tensor& m3, at::Tensor& m4) const;

  /// Counts the sample in `slots`, [kept, bins + 3]: bins, underflow, overflow, NaN; false, and nothing done,
  /// if there is no answer. A pass of its own.
  bool count_bins(const Folding& folding, const Bins& bins, std::int64_t* slots) const;

 private:
  struct Read {
    Layout layout;
    Needs needs;
    std::vector<Summary> kept;  // empty until it is done
  };

  std::optional<Layout> layout(const Folding& folding) const;
  Read& request(const Layout& layout, Needs needs);
  const std::vector<Summary>& done(Read& read) const;

  const at::Tensor& sample_;
  bool plain_;
  at::Tensor contiguous_;            // the same elements
  std::vector<std::int64_t> order_;  // the sample's dimensions as they lie in `contiguous_`
  mutable std::vector<Read> reads_;  // one for each way of folding
  Needs total_;
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
