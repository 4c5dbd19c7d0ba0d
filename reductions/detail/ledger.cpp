// Hands a ledger to the reductions that ask it.
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

}  // namespace torchtap::reductions
