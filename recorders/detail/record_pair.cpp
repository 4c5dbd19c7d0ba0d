// Folds samples together with their companions of other modules.
#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/recorders/detail/pairing.hpp>
#include <torchtap/recorders/detail/record.hpp>

namespace torchtap::recorders::detail {
namespace {

/// The number of changes in place; -1 if they are not counted.
std::int64_t version_of(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.is_inference() ? -1 : static_cast<std::int64_t>(tensor._version());
}

}  // namespace

std::vector<hooks::Handle> Record::pair(const model::ModuleRef& module) {
  const auto& companions = options->with();
  if (companions.empty()) return {};
  TORCH_CHECK_NOT_IMPLEMENTED(
      !traits(kind).gradients && options->stream() == nullptr, describe(),
      ": RecorderOptions::with pairs tensors of one forward, so it cannot be used with gradients "
      "nor with a stream; name the tensor with core::Context instead.");
  for (const auto& [name, companion] : companions) {
    const auto names =
        options->reduction() == nullptr ? std::vector<std::string>() : options->reduction()->companions();
    TORCH_CHECK_VALUE(std::find(names.begin(), names.end(), name) != names.end(), describe(), ": with(\"",
                      name, "\", ", companion.describe(), ") names a tensor that ",
                      options->reduction() == nullptr ? "no reduction" : options->reduction()->describe(),
                      " looks up; it looks up ", base::quoted(names), ".");
  }
  std::vector<hooks::Handle> hooks;
  auto pairing = std::make_shared<const Pairing>(shared_from_this(), module, hooks);
  const std::lock_guard lock(pairing_mutex_);
  pairing_ = std::move(pairing);
  return hooks;
}

/// The pair of the recorded module's call, or of the call of a companion's module.
Pair& Record::pair_of(const hooks::Event& event, std::optional<std::size_t> companion) {
  std::shared_ptr<const Pairing> pairing;
  {
    const std::lock_guard lock(pairing_mutex_);
    pairing = pairing_;
  }
  return pairing->of_call(shared_from_this(), event.call_index(), companion);
}

void Record::count_unmatched(const Pair& pair) noexcept {
  if (pair.refused) return;
  counts_.unmatched.fetch_add(1, std::memory_order_relaxed);
  if (pair.sampled) counts_.unmatched_samples.fetch_add(1, std::memory_order_relaxed);
}

/// Counts the sample of a forward before, in the same context.
void Record::forget_sample(Pair& pair) noexcept {
  if (pair.sampled) count_unmatched(pair);
  pair.samples.clear();
  pair.versions.clear();
  pair.sampled = pair.refused = false;
}

/// Counts an event that the condition refused; its companions are not missed.
void Record::refuse(hooks::Event& event) {
  counts_.refused.fetch_add(1, std::memory_order_relaxed);
  if (options->with().empty()) return;
  Pair& pair = pair_of(event);
  forget_sample(pair);
  pair.refused = true;
  if (pair.complete()) Pairing::taken(pair);
}

/// A tensor that waits: with its own memory, unless `Capture::alias` was asked for.
at::Tensor Record::kept_until_paired(const at::Tensor& sample, const at::Tensor& original) const {
  if (!sample.defined() || options->capture() == Capture::alias || !sample.has_storage() ||
      !sample.is_alias_of(original))
    return sample;
  const base::RecordingMode quiet;
  return sample.detach().clone();
}

void Record::take_with_companions(hooks::Event& event, const hooks::Tensors* tensors,
                                  const at::Tensor& first) {
  Pair& pair = pair_of(event);
  forget_sample(pair);
  c10::SmallVector<at::Tensor, 1> samples;
  if (options->all_tensors()) {
    for (std::int64_t i = 0; i < tensors->size(); ++i) samples.push_back((*tensors)[i]);
  } else {
    samples.push_back(first);
  }
  if (pair.complete()) return fold_pair(Pairing::taken(pair), samples, as_it_is_);
  const Turn turn(*this);
  for (at::Tensor& sample : samples) sample = kept_until_paired(prepare(sample), sample);
  for (const at::Tensor& sample : samples) pair.versions.push_back(version_of(sample));
  pair.samples = std::move(samples);  // all of them, or none if a transform throws
  pair.sampled = true;
}

void Record::on_companion(hooks::Event& event, std::size_t index) {
  const auto& [name, how] = options->with()[index];
  const auto report = [this] {
    if (options->on_error() == nullptr) throw;
    options->on_error()(id.path, std::current_exception());
  };
  try {
    const hooks::Tensors& tensors = how.of_output() ? event.outputs() : event.inputs();
    TORCH_CHECK_TYPE(how.slot() < tensors.size() && tensors[how.slot()].defined(),
                     "recorders::RecorderOptions::with: ", how.describe(), " is tensor ", how.slot(),
                     " of \"", event.path(), "\" (", event.type(), "), which holds ", tensors.size(), ".");
    const at::Tensor original = tensors[how.slot()];
    at::Tensor companion;
    {
      const base::RecordingMode quiet;
      companion = how.mapped(original.requires_grad() ? original.detach() : original);
      TORCH_CHECK_VALUE(companion.defined(), "recorders::Companion::map: the function for \"", name,
                        "\" returned an undefined tensor.");
      if (options->device().has_value()) companion = companion.to(*options->device());
    }
    Pair& pair = pair_of(event, index);
    if (pair.companions[index].defined()) counts_.unmatched.fetch_add(1, std::memory_order_relaxed);
    pair.companions[index] = companion;
    if (pair.complete() && pair.refused) {
      Pairing::taken(pair);
    } else if (pair.complete() && pair.sampled) {
      const Pair all = Pairing::taken(pair);
      for (std::size_t i = 0; i < all.samples.size(); ++i) {
        TORCH_CHECK_VALUE(
            version_of(all.samples[i]) == all.versions[i], describe(), ": a sample waited for \"", name,
            "\" as an alias and has been changed in place since; capture copies (the default).");
      }
      fold_pair(all, all.samples, /*prepared=*/true);
    } else {
      pair.companions[index] = kept_until_paired(companion, original);
    }
  } catch (const StopForward&) {
    throw;
  } catch (c10::Error& error) {
    if (leaves_out(error)) return;
    error.add_context(c10::str("while recording ", describe(), ", sample ", samples()));
    report();
  } catch (...) {
    report();
  }
}

void Record::fold_pair(const Pair& pair, c10::ArrayRef<at::Tensor> samples, bool prepared) {
  core::Context::Names names;
  for (std::size_t i = 0; i < pair.companions.size(); ++i) {
    names.emplace_back(options->with()[i].first, pair.companions[i]);
  }
  const core::Context named(std::move(names));
  fold(samples, 0, prepared);
  stop_if_last();
}

}  // namespace torchtap::recorders::detail
