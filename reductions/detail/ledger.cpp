// Hands a ledger to the reductions that ask it.
#include <algorithm>
#include <functional>

#include <torchtap/reductions/detail/ledger.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions {

bool SharesPass::ask_ledger(detail::Ledger& /*ledger*/) const {
  return false;
}

void SharesPass::fold_ledger(const detail::Ledger& /*ledger*/) {}

bool detail::Ledger::asked_by(const SharesPass& reduction) {
  return reduction.ask_ledger(*this);
}

void detail::Ledger::fold_into(SharesPass& reduction) const {
  reduction.fold_ledger(*this);
}

bool detail::Ledger::count_bins(const Folding& folding, const Edges& edges, std::int64_t* slots) const {
  const auto counts = bins(folding, edges->edges());
  std::transform(counts.begin(), counts.end(), slots, slots, std::plus<>());
  return true;
}

const std::vector<detail::SlotCounts>* detail::Ledger::count_bits(const Folding& folding,
                                                                  BitBins bins) const {
  return &bits(folding, bins);
}

}  // namespace torchtap::reductions
