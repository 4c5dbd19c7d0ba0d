// Keeps samples in memory.
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/recorders/detail/keep.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::recorders::detail {

Keep::Keep(Slots& slots, Prepare& prepare)
    : Taker(slots),
      prepare_(prepare),
      one_(!slots.options->all_tensors() || traits(slots.kind).gradients),
      alike_(one_ && prepare.as_it_is() && slots.options->capture() == Capture::copy &&
             !slots.options->memory_budget() && slots.options->spool_directory().empty()) {}

Taker::Took Keep::take(const hooks::Event& /*event*/, c10::ArrayRef<at::Tensor> tensors,
                       std::size_t first_slot) {
  if (!prepare_.as_it_is()) {
    const Prepare::Turn turn(prepare_);
    c10::SmallVector<at::Tensor, 2> ready;
    for (const at::Tensor& tensor : tensors) ready.push_back(prepare_(tensor));
    const std::lock_guard lock(slots_.mutex);
    return keep_event(ready, first_slot);
  }
  const std::lock_guard lock(slots_.mutex);
  if (!alike_ || first_slot >= slots_.list.size() || !slots_.list[first_slot].list.append_alike(tensors[0]))
    return keep_event(tensors, first_slot);
  slots_.count_one();
  return Took::sample;
}

Taker::Took Keep::keep_event(c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) {
  c10::SmallVector<at::Tensor, 2> samples(tensors.begin(), tensors.end());
  // Calls may have different numbers of tensors: with undefined ones, sample i of each slot is from call i.
  while (!one_ && samples.size() < slots_.list.size()) samples.push_back({});
  if (!keep(samples, first_slot)) return Took::nothing;
  slots_.count_one();
  return Took::sample;
}

bool Keep::keep(Samples& samples, std::size_t first_slot) {
  (void)check(samples);
  add_slots(first_slot + samples.size());
  append(samples, first_slot);
  return true;
}

std::int64_t Keep::check(Samples& samples) {
  std::int64_t bytes = 0;
  for (at::Tensor& sample : samples) {
    if (!sample.defined()) continue;
    // Checked here, and not in `save` at the end of a long run.
    TORCH_CHECK_TYPE(!sample.is_quantized(), slots_.describe(), ": the tensor is quantized, of dtype ",
                     sample.scalar_type(),
                     ", which files for torch.load(weights_only=True) cannot hold; record its "
                     "values with RecorderOptions().transform(torchtap::recorders::dequantized).");
    // Memory holds any tensor but a wrapper, which ends before it is read.
    const bool wrapper = sample.layout() == c10::kStrided && !base::is_strided(sample) && !sample.is_nested();
    if (wrapper || for_files()) sample = held_or_left_out(sample);
    if (sample.defined() && base::is_strided(sample)) bytes += static_cast<std::int64_t>(sample.nbytes());
  }
  return bytes;
}

/// Adds slots until there are `count`, with an undefined tensor for each sample that was recorded before.
void Keep::add_slots(std::size_t count) {
  while (slots_.list.size() < count) {
    slots_.list.push_back(slots_.fresh_slot());
    if (!traits(slots_.kind).gradients) pad(slots_.list.size() - 1, slots_.recorded);
  }
}

void Keep::pad(std::size_t slot, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) slots_.list[slot].list.append({}, /*shared=*/false);
}

void Keep::append(const Samples& samples, std::size_t first_slot) {
  std::size_t kept = 0;
  try {
    for (; kept < samples.size(); ++kept) {
      const at::Tensor& sample = samples[kept];
      SampleList& list = slots_.list[first_slot + kept].list;
      if (sample.defined() && slots_.options->capture() == Capture::alias) {
        const base::RecordingMode quiet;
        list.append(sample.detach(), /*shared=*/true);
      } else {
        list.append_copy(sample);
      }
    }
  } catch (...) {
    while (kept > 0) slots_.list[first_slot + --kept].list.drop_last();
    throw;
  }
}

const at::Tensor& Keep::held_or_left_out(const at::Tensor& sample) {
  static const auto& none = *new const at::Tensor;  // models may outlive static objects
  if (storage::can_hold(sample)) return sample;
  slots_.counts.leave_out(why_not_held(sample), /*none=*/true);
  return none;
}

std::string why_not_held(const at::Tensor& tensor) {
  return c10::str("files cannot hold ",
                  base::is_strided(tensor) ? c10::str("dtype ", tensor.scalar_type(), " on ", tensor.device())
                                           : base::instead_of_strided(tensor),
                  ".");
}

}  // namespace torchtap::recorders::detail
