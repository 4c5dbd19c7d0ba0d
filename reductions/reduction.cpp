// Implements the update that the library's reductions share, as one pass over the sample.

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/detail/ledger.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

void Reduction::update(const at::Tensor& sample) {
  const bool has_lines = !intake_.folding().over_all;
  if (has_lines) {
    const auto lines = intake_.lines_alike(sample);
    if (lines && combine_lines(*lines)) return intake_.count_rows(lines->rows);
  }
  Pass pass(sample);
  pass.ask(*this);
  pass.fold_into(*this);
  if (has_lines) intake_.remember(pass);
}

void Reduction::check(const at::Tensor& sample) const {
  Pass pass(sample);
  pass.ask(*this);
  pass.check(*this);
}

void Reduction::ask(Pass& pass) const {
  const auto needs = this->needs();
  if (needs && !intake_.lines(pass)) detail::parts_of(pass).requests.ask(intake_.folding(), *needs);
}

bool Reduction::ask_ledger(detail::Ledger& ledger) const {
  const auto needs = this->needs();
  return needs && ledger.ask(intake_, *needs);
}

void Reduction::fold_ledger(const detail::Ledger& ledger) {
  const at::Tensor all = ledger.as_one(intake_.folding());
  const Pass pass(all, ledger);
  pass.fold_into(*this);
}

/// Empty if the reduction takes none, though others may have asked for them.
c10::ArrayRef<Summary> Reduction::summaries(const Pass& pass) const {
  return needs() ? detail::parts_of(pass).answers.summaries(intake_.folding()) : c10::ArrayRef<Summary>();
}

void Reduction::fold(const Pass& pass) {
  if (fold_small(pass)) return;
  const base::RecordingMode quiet;
  const auto kept = summaries(pass);
  const detail::Rows rows = intake_.open(pass.sample(), kept);
  if (rows.count == 0) return;
  combine_rows(pass, rows, kept);
  intake_.commit(rows);
}

/// Folds a sample like those before, if it is small or was summarised, without ATen. Returns false for any
/// other sample, and does nothing then.
bool Reduction::fold_small(const Pass& pass) {
  if (const auto lines = intake_.lines(pass)) {
    if (!combine_lines(*lines)) return false;
    intake_.count_rows(lines->rows);
    return true;
  }
  const auto rows = intake_.fitting_rows(pass);
  if (!rows) return false;
  const bool elements_are_rows = intake_.folding().over_all && !intake_.any_shape();
  const auto* const all = elements_are_rows ? detail::parts_of(pass).sample.memory() : nullptr;
  if (all == nullptr || !combine_all(*all)) {
    const auto kept = detail::parts_of(pass).answers.summaries(intake_.folding());
    if (kept.empty() || !combine_summaries(kept)) return false;
  }
  intake_.count_rows(*rows);
  return true;
}

void Reduction::check_sample(const Pass& pass) const {
  if (intake_.fitting_rows(pass)) return;
  const base::RecordingMode quiet;
  (void)intake_.open(pass.sample(), summaries(pass));
}

}  // namespace torchtap::reductions
