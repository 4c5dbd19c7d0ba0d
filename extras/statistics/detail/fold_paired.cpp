// Folds samples together with their companions of other modules.
#include <algorithm>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/statistics/detail/fold_paired.hpp>

namespace torchtap::statistics::detail {
namespace {

/// The number of changes in place; -1 if they are not counted.
std::int64_t version_of(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.is_inference() ? -1 : static_cast<std::int64_t>(tensor._version());
}

}  // namespace

FoldPaired::FoldPaired(Slots& slots, Prepare& prepare, std::unique_ptr<Fold> folds,
                       std::shared_ptr<const Companions> named)
    : TakerAround(slots, std::move(folds)), prepare_(prepare), named_(std::move(named)) {
  const auto& reduction = slots.options->reduction();
  TORCH_CHECK_NOT_IMPLEMENTED(
      !recorders::traits(slots.kind).gradients, slots.describe(),
      ": RecorderOptions::with pairs tensors of one forward, so it cannot be used with gradients; name the "
      "tensor with core::Context instead.");
  const auto looked_up = reduction == nullptr ? std::vector<std::string>() : reduction->companions();
  for (const auto& [name, companion] : *named_) {
    TORCH_CHECK_VALUE(std::find(looked_up.begin(), looked_up.end(), name) != looked_up.end(),
                      slots.describe(), ": with(\"", name, "\", ", companion.describe(),
                      ") names a tensor that ", reduction == nullptr ? "no reduction" : reduction->describe(),
                      " looks up; it looks up ", base::quoted(looked_up), ".");
  }
}

std::vector<hooks::Handle> FoldPaired::companions(const std::shared_ptr<Record>& record,
                                                  const model::ModuleRef& module) {
  const std::shared_ptr<FoldPaired> self(record, this);
  std::vector<hooks::Handle> hooks;
  auto pairing = std::make_shared<const Pairing>(self, module, hooks);
  const std::lock_guard lock(mutex_);
  self_ = self;
  pairing_ = std::move(pairing);
  return hooks;
}

/// The pair of the recorded module's call, or of the call of a companion's module.
Pair& FoldPaired::pair_of(const hooks::Event& event, std::optional<std::size_t> companion) {
  std::shared_ptr<const Pairing> pairing;
  {
    const std::lock_guard lock(mutex_);
    pairing = pairing_;
  }
  return pairing->of_call(self_.lock(), event.call_index(), companion);
}

void FoldPaired::count_unmatched(const Pair& pair) noexcept {
  if (pair.refused) return;
  slots_.counts.unmatched.fetch_add(1, std::memory_order_relaxed);
  if (pair.sampled) slots_.counts.unmatched_samples.fetch_add(1, std::memory_order_relaxed);
}

/// Counts the sample of a forward before, in the same context.
void FoldPaired::forget_sample(Pair& pair) noexcept {
  if (pair.sampled) count_unmatched(pair);
  pair.samples.clear();
  pair.versions.clear();
  pair.sampled = pair.refused = false;
}

/// The companions of a refused event are not missed.
void FoldPaired::refuse(const hooks::Event& event) {
  Taker::refuse(event);
  Pair& pair = pair_of(event);
  forget_sample(pair);
  pair.refused = true;
  if (pair.complete()) Pairing::taken(pair);
}

/// A tensor that waits: with its own memory, unless `recorders::Capture::alias` was asked for.
at::Tensor FoldPaired::kept(const at::Tensor& sample, const at::Tensor& original) const {
  if (!sample.defined() || slots_.options->capture() == recorders::Capture::alias || !sample.has_storage() ||
      !sample.is_alias_of(original))
    return sample;
  const base::RecordingMode quiet;
  return sample.detach().clone();
}

recorders::extend::Taker::Took FoldPaired::take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors,
                                                std::size_t first_slot) {
  Pair& pair = pair_of(event);
  forget_sample(pair);
  if (pair.complete()) {
    const Pair all = Pairing::taken(pair);
    const core::Context named(companions_of(all));
    return folds().take(event, tensors, first_slot);
  }
  const Prepare::Turn turn(prepare_);
  c10::SmallVector<at::Tensor, 1> samples;
  for (const at::Tensor& tensor : tensors) samples.push_back(kept(prepare_(tensor), tensor));
  for (const at::Tensor& sample : samples) pair.versions.push_back(version_of(sample));
  pair.samples = std::move(samples);  // all of them, or none if a transform throws
  pair.sampled = true;
  return Took::waits;
}

void FoldPaired::on_companion(hooks::Event& event, std::size_t index) {
  try {
    add_companion(event, index);
  } catch (const recorders::extend::StopForward&) {
    throw;
  } catch (c10::Error& error) {
    if (slots_.leaves_out(error)) return;
    error.add_context(c10::str("while recording ", slots_.describe(), ", sample ", samples()));
    slots_.report();
  } catch (...) {
    slots_.report();
  }
}

void FoldPaired::add_companion(hooks::Event& event, std::size_t index) {
  const auto& [name, how] = (*named_)[index];
  const hooks::Tensors& tensors = how.of_output() ? event.outputs() : event.inputs();
  TORCH_CHECK_TYPE(how.slot() < tensors.size() && tensors[how.slot()].defined(),
                   "recorders::RecorderOptions::with: ", how.describe(), " is tensor ", how.slot(), " of \"",
                   event.path(), "\" (", event.type(), "), which holds ", tensors.size(), ".");
  const at::Tensor original = tensors[how.slot()];
  at::Tensor companion;
  {
    const base::RecordingMode quiet;
    companion = how.mapped(original.requires_grad() ? original.detach() : original);
    TORCH_CHECK_VALUE(companion.defined(), "recorders::Companion::map: the function for \"", name,
                      "\" returned an undefined tensor.");
    if (slots_.options->device().has_value()) companion = companion.to(*slots_.options->device());
  }
  Pair& pair = pair_of(event, index);
  if (pair.companions[index].defined()) slots_.counts.unmatched.fetch_add(1, std::memory_order_relaxed);
  pair.companions[index] = companion;
  if (!pair.complete() || (!pair.refused && !pair.sampled)) {
    pair.companions[index] = kept(companion, original);
    return;
  }
  const Pair all = Pairing::taken(pair);
  if (all.refused) return;
  for (std::size_t i = 0; i < all.samples.size(); ++i) {
    TORCH_CHECK_VALUE(version_of(all.samples[i]) == all.versions[i], slots_.describe(),
                      ": a sample waited for \"", name,
                      "\" as an alias and has been changed in place since; capture copies (the default).");
  }
  const core::Context named(companions_of(all));
  folds().fold(all.samples, 0);
  recorders::extend::stop_if_last(slots_);
}

core::Context::Names FoldPaired::companions_of(const Pair& pair) const {
  core::Context::Names names;
  for (std::size_t i = 0; i < pair.companions.size(); ++i) {
    names.emplace_back((*named_)[i].first, pair.companions[i]);
  }
  return names;
}

}  // namespace torchtap::statistics::detail
