// Feeds the rows that a mask chooses to a reduction.

#include <ATen/Functions.h>

#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/extend/ledger.hpp>
#include <torchtap/statistics/extend/chosen_rows.hpp>
#include <torchtap/statistics/extend/companions.hpp>
#include <torchtap/statistics/where.hpp>

namespace torchtap::reductions {

Where::Where(std::string mask, Any reduction) : name_(std::move(mask)), reduction_(std::move(reduction)) {
  extend::expect_other_names("reductions::where", name_, reduction_);
}

/// Calls `f` with a pass over the rows that the mask takes, if there are any. Returns how many it leaves out.
/// On a device the pass is over a copy of these rows.
template <class F>
std::int64_t Where::with_rows(const at::Tensor& sample, const F& f) const {
  const at::Tensor mask = extend::on_cpu("Where", name_, statistics::detail::mask(name_, sample), sample);
  const auto* const chosen = mask.data_ptr<bool>();
  const auto all = static_cast<std::size_t>(mask.numel());
  std::vector<std::int64_t> rows(all + 1);
  std::size_t taken = 0;
  for (std::size_t row = 0; row < all; ++row) {
    rows[taken] = static_cast<std::int64_t>(row);
    taken += chosen[row] ? 1 : 0;
  }
  rows.resize(taken);
  if (taken != 0) {
    const base::RecordingMode quiet;
    const extend::Selection selection(mask.sizes(), rows);
    at::Tensor source = mask.dim() == 0 ? sample : extend::as_source(sample, mask.dim());
    const bool copied = taken != all && !source.is_cpu();
    if (copied) source = extend::choose_rows(source, rows);
    Pass whole(source);
    if (taken == all || copied) {
      f(whole);
    } else {
      Pass some(whole, rows);
      f(some);
    }
  }
  return static_cast<std::int64_t>(all - taken);
}

void Where::update(const at::Tensor& sample) {
  const extend::Beginning beginning("Where", name_ + ".left_out", reduction_);
  const std::int64_t left_out = with_rows(sample, [&](Pass& pass) {
    if (auto* const sharing = extend::sharing(reduction_)) {
      pass.ask(*sharing);
      pass.fold_into(*sharing);
    } else {
      reduction_.update(pass.sample());
    }
  });
  beginning.check(reduction_);
  left_out_ += left_out;
}

void Where::check(const at::Tensor& sample) const {
  with_rows(sample, [&](Pass& pass) {
    if (const auto* const sharing = extend::sharing(reduction_)) {
      pass.ask(*sharing);
      pass.check(*sharing);
    } else {
      reduction_.check(pass.sample());
    }
  });
}

bool Where::ask_ledger(extend::Ledger& ledger) const {
  const auto* const sharing = extend::sharing(reduction_);
  return sharing != nullptr && ledger.choose(name_, &statistics::detail::mask) && sharing->ask_ledger(ledger);
}

void Where::fold_ledger(const extend::Ledger& ledger) {
  left_out_ += ledger.left_out();
  if (ledger.elements() == 0) return;
  const extend::Beginning beginning("Where", name_ + ".left_out", reduction_);
  extend::sharing(reduction_)->fold_ledger(ledger);
  beginning.check(reduction_);
}

void Where::merge(const Where& other) {
  TORCH_CHECK_VALUE(name_ == other.name_, "reductions::Where::merge: cannot merge ", other.describe(),
                    " into ", describe(), "; both must be configured alike.");
  reduction_.merge(other.reduction_);
  left_out_ += other.left_out_;
}

core::Results Where::results() const {
  core::Results all = reduction_.results();
  if (!all.empty() || left_out_ != 0) all.set(name_ + ".left_out", at::scalar_tensor(left_out_, at::kLong));
  return all;
}

std::string Where::describe() const {
  return "Where(" + name_ + ", " + reduction_.describe() + ")";
}

std::vector<std::string> Where::companions() const {
  auto names = reduction_.companions();
  names.insert(names.begin(), name_);
  return names;
}

std::string Where::recipe() const {
  return extend::recipe_of("Where", core::Access::recipe(reduction_));
}

void Where::save(core::OutputArchive& archive) const {
  core::state_version(archive, "Where", 1);
  archive(name_, left_out_);
  reduction_.save(archive);
}

void Where::load(core::InputArchive& archive) {
  Where loaded = *this;
  core::state_version(archive, "Where", 1);
  archive(loaded.name_, loaded.left_out_);
  loaded.reduction_.load(archive);
  TORCH_CHECK_VALUE(loaded.left_out_ >= 0, "restore: the archive claims that ", loaded.left_out_,
                    " rows were left out; it is damaged.");
  extend::expect_other_names("restore", loaded.name_, loaded.reduction_);
  *this = std::move(loaded);
}

}  // namespace torchtap::reductions
