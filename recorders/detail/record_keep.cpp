// Keeps samples in memory, within the budget, or in the spool.
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::recorders::detail {

/// The usual case: keeps a sample that is like the last one, where there is room for it. In any other case it
/// does nothing and returns false.
bool Record::keep_alike(const at::Tensor& sample, std::int64_t slot) {
  return copied_ && stream_ == nullptr && static_cast<std::size_t>(slot) < slots_.size() &&
         slots_[static_cast<std::size_t>(slot)].list.append_alike(sample);
}

/// Keeps the tensors of one event, which are as the options say, all of them or none. False if they were
/// dropped.
bool Record::keep(c10::SmallVectorImpl<at::Tensor>& samples, std::int64_t first_slot) {
  const auto count = static_cast<std::int64_t>(samples.size());
  std::int64_t bytes = 0;
  for (at::Tensor& sample : samples) {
    if (!sample.defined()) continue;
    // Checked here, and not in `save` at the end of a long run.
    TORCH_CHECK_TYPE(!sample.is_quantized(), describe(), ": the tensor is quantized, of dtype ",
                     sample.scalar_type(),
                     ", which files for torch.load(weights_only=True) cannot hold; record its "
                     "values with RecorderOptions().transform(torchtap::recorders::dequantized).");
    // Memory holds any tensor but a wrapper, which ends before it is read.
    const bool wrapper = sample.layout() == c10::kStrided && !base::is_strided(sample) && !sample.is_nested();
    if (wrapper || !options->spool_directory().empty()) sample = held_or_left_out(sample);
    if (sample.defined() && base::is_strided(sample)) bytes += static_cast<std::int64_t>(sample.nbytes());
  }
  if (stream_ == nullptr && options->memory_budget() && !within_budget(bytes)) return false;
  add_slots(first_slot + count);
  if (stream_ != nullptr) {
    if (!store_->spool().admit(*stream_, bytes)) return false;
    for (std::int64_t i = 0; i < count; ++i) {
      stream_->append(samples[static_cast<std::size_t>(i)], spooled_slot(first_slot + i));
    }
    return true;
  }
  std::int64_t kept = 0;
  try {
    for (; kept < count; ++kept) {
      const at::Tensor& sample = samples[static_cast<std::size_t>(kept)];
      SampleList& list = slots_[static_cast<std::size_t>(first_slot + kept)].list;
      if (sample.defined() && options->capture() == Capture::alias) {
        const base::RecordingMode quiet;
        list.append(sample.detach(), /*shared=*/true);
      } else {
        list.append_copy(sample);
      }
    }
  } catch (...) {
    while (kept > 0) slots_[static_cast<std::size_t>(first_slot + --kept)].list.drop_last();
    count_held();
    throw;
  }
  count_held();
  return true;
}

/// Adds slots until there are `count`, with an undefined tensor for each sample that was recorded before.
void Record::add_slots(std::int64_t count) {
  while (static_cast<std::int64_t>(slots_.size()) < count) {
    const auto slot = static_cast<std::int64_t>(slots_.size());
    slots_.push_back(make_slot());
    for (std::int64_t i = 0; i < recorded_ && !traits(kind).gradients; ++i) {
      if (stream_ != nullptr) {
        stream_->append({}, slot);
      } else {
        slots_.back().list.append({}, /*shared=*/false);
      }
    }
  }
}

/// Whether samples of `bytes` bytes may be recorded. If the budget is used up, opens the spool and sets
/// `stream_`.
bool Record::within_budget(std::int64_t bytes) {
  const std::int64_t budget = *options->memory_budget();
  if (!store_->spooling()) {
    if (store_->held.load() + bytes <= budget) return true;
    if (options->spool_directory().empty()) {
      TORCH_CHECK(
          options->over_budget() == OverBudget::drop, describe(), ": the memory budget of ", budget,
          " bytes is used up: ", store_->held.load(), " bytes are kept, and a sample of ", bytes,
          " bytes arrived. It was not recorded; all before it are. Save or reset the recorder, reduce the "
          "samples, or have them spooled (recorders::RecorderOptions::spool, or memory_budget with a "
          "directory).");
      return false;
    }
    store_->spill();
  }
  move_to_spool();
  return true;
}

/// Called under the lock. If it throws, the samples that were not moved stay in memory.
void Record::move_to_spool() {
  auto* stream = store_->stream(module_);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::vector<at::Tensor> samples = slots_[i].list.tensors(describe());
    std::size_t moved = 0;
    const auto keep_the_rest = [&] {
      SampleList rest;
      for (; moved < samples.size(); ++moved) {
        rest.append(samples[moved], /*shared=*/options->capture() == Capture::alias);
      }
      slots_[i].list = std::move(rest);
      count_held();
    };
    try {
      for (; moved < samples.size(); ++moved) {
        const at::Tensor& sample = held_or_left_out(samples[moved]);
        const bool bytes = sample.defined();
        store_->spool().admit(*stream, bytes ? static_cast<std::int64_t>(sample.nbytes()) : 0,
                              storage::WhenFull::wait);
        stream->append(sample, spooled_slot(static_cast<std::int64_t>(i)));
      }
    } catch (...) {
      keep_the_rest();
      throw;
    }
    keep_the_rest();  // none
  }
  stream_ = stream;
}

std::string Record::why_not_held(const at::Tensor& tensor) {
  return c10::str("files cannot hold ",
                  base::is_strided(tensor) ? c10::str("dtype ", tensor.scalar_type(), " on ", tensor.device())
                                           : base::instead_of_strided(tensor),
                  ".");
}

/// The sample, or an undefined one in its place if files cannot hold it, which is counted.
const at::Tensor& Record::held_or_left_out(const at::Tensor& sample) const {
  static const auto& none = *new const at::Tensor;  // models may outlive static objects
  if (storage::can_hold(sample)) return sample;
  counts_.leave_out(why_not_held(sample), /*none=*/true);
  return none;
}

void Record::count_held() noexcept {
  if (store_ == nullptr) return;
  std::int64_t now = 0;
  for (const SlotData& slot : slots_) now += slot.list.bytes();
  store_->held.fetch_add(now - held_);
  held_ = now;
}

storage::Spool::Stream* Record::spooled() const {
  if (store_ == nullptr || !store_->spooling()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (stream_ == nullptr) const_cast<Record*>(this)->move_to_spool();
  stream_->note(words());
  stream_->not_recorded(counts_.now());
  return stream_;
}

void Record::refuse_spooled(const char* call) const {
  TORCH_CHECK_VALUE(store_ == nullptr || !store_->spooling(), call, ": ", describe(),
                    ": samples are spooled to \"", store_->spool().directory(),
                    "\", which this call cannot change or copy; save() there, and read the recording with "
                    "storage::load.");
}

}  // namespace torchtap::recorders::detail
