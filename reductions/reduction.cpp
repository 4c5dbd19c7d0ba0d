// Implements the update that the library's reductions share, as one pass over the sample.

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/detail/ledger.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

void Reduction::update(const at::Tensor& sample) {
  Pass pass(sample);
  if (!intake_.folding().over_all && fold_small(pass)) return;  // needs no answer
  pass.ask(*this);
  pass.fold_into(*this);
}

void Reduction::check(const at::Tensor& sample) const {
  Pass pass(sample);
  pass.ask(*this);
  pass.check(*this);
}

void Reduction::ask(Pass& /*pass*/) const {}

void Reduction::fold_ledger(const detail::Ledger& ledger) {
  const at::Tensor all = ledger.as_one(intake_.folding());
  const Pass pass(all, ledger);
  pass.fold_into(*this);
}

bool Reduction::fold_small(const Pass& /*pass*/) {
  return false;
}

void Reduction::ask_rows(Pass& pass, Needs needs) const {
  if (!intake_.lines(pass)) detail::kernels_of(pass).ask(intake_.folding(), needs);
}

void Reduction::check_sample(const Pass& pass) const {
  if (intake_.fitting_rows(pass)) return;
  const base::RecordingMode quiet;
  (void)intake_.open(pass);
}

}  // namespace torchtap::reductions
