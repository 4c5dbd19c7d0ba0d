#pragma once

/// Collects the requests of reductions about a sample, reads it once, and answers them.

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/detail/answers.hpp>
#include <torchtap/reductions/detail/readable.hpp>

namespace torchtap::reductions::detail {

/// The requests about a sample and their answers: a small sample's total by loops, all else by the kernels,
/// in one read for each way of folding.
class TORCHTAP_API Requests final : public Answers {
 public:
  /// `sample` must outlive it.
  explicit Requests(const Readable& sample) noexcept : sample_(sample) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  /// Asks for a summary of each kept element. An elementwise folding has none.
  void ask(const Folding& folding, Needs needs);
  /// Asks for a summary of all elements.
  void ask_total(Needs needs) { total_ = total_.value_or(Needs()) | needs; }
  /// Asks for counts in bins.
  void ask_bins(const Folding& folding, const Edges& edges);
  /// Asks for counts by the bits of the elements, which may be integers.
  void ask_bits(const Folding& folding, BitBins bins);

  /// The requested summary of all elements, if the kernels or loops can compute it.
  std::optional<Summary> total() const;
  c10::ArrayRef<Summary> summaries(const Folding& folding) const override;
  /// Needs a separate read unless these bins were asked for.
  bool count_bins(const Folding& folding, const Edges& edges, std::int64_t* slots) const override;
  const std::vector<SlotCounts>* count_bits(const Folding& folding, BitBins bins) const override;

 private:
  bool is_whole(const Folding& folding) const noexcept;
  bool total_of_reads() const noexcept;
  const Summary& whole() const;
  Read& request(const Layout& layout);
  Read* find(const std::optional<Layout>& layout) const;
  const Read& done(Read& read) const;

  const Readable& sample_;
  std::optional<Needs> total_;            // what was asked of all elements
  mutable std::optional<Summary> whole_;  // of all elements of a small sample, which need no list
  // One for each way of folding. Most passes over small samples have none.
  struct Reads {
    ~Reads();  // apart, so that a pass tests only whether there are any
    std::vector<Read> all;
  };
  mutable std::optional<Reads> reads_;
};

}  // namespace torchtap::reductions::detail
