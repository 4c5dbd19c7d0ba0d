// How a record keeps samples: in memory, within the budget, and in the spool.
#include <torchtap/core/detail/error.hpp>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/recorders/detail/record.hpp>

namespace torchtap::recorders::detail {

/// The usual case: keeps a sample that is like the last one, in the room that is there. False, and nothing
/// done, in any other.
bool Record::keep_alike(const at::Tensor& sample, std::int64_t slot) {
  return copied_ && stream_ == nullptr && static_cast<std::size_t>(slot) < slots_.size() &&
         slots_[static_cast<std::size_t>(slot)].list.append_alike(sample);
}

/// Keeps the tensors of one event, all of them or none. False if they were dropped.
bool Record::keep(c10::SmallVectorImpl<at::Tensor>& samples, std::int64_t first_slot) {
  const auto count = static_cast<std::int64_t>(samples.size());
  std::int64_t bytes = 0;
  for (at::Tensor& sample : samples) {
    if (!as_it_is_) sample = prepare(sample);
    if (!sample.defined()) continue;
    // Now, and not when all is to be saved at the end of a long run.
    TORCH_CHECK_TYPE(
        !sample.is_quantized(), describe(), ": the tensor is quantized, of dtype ", sample.scalar_type(),
        ", and files have no form for that which torch.load(weights_only=True) reads; record its "
        "values with Options().transform(torchtap::recorders::dequantized).");
    if (sample.layout() == c10::kStrided) bytes += static_cast<std::int64_t>(sample.nbytes());
  }
  if (stream_ == nullptr && options->memory_budget() >= 0 && !within_budget(bytes)) return false;
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
        const core::detail::RecordingMode quiet;
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

/// Makes slots until there are `count`, with nothing for each sample that was recorded without them.
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

/// May samples of `bytes` be kept here? Afterwards `stream_` says whether they go to the spool.
bool Record::within_budget(std::int64_t bytes) {
  const std::int64_t budget = options->memory_budget();
  if (!store_->spooling()) {
    if (store_->held.load() + bytes <= budget) return true;
    if (options->spool_directory().empty()) {
      TORCH_CHECK(
          options->over_budget() == OverBudget::drop, describe(), ": the memory budget of ", budget,
          " bytes is used up: ", store_->held.load(), " bytes are kept, and a sample of ", bytes,
          " bytes has come. It was not recorded; all before it are. Save or reset the recorder, reduce the "
          "samples, or have them spooled (recorders::Options::spool, or memory_budget with a directory).");
      return false;
    }
    store_->spill();
  }
  move_to_spool();
  return true;
}

/// Under the lock. What throws leaves the samples where they are.
void Record::move_to_spool() {
  auto* stream = store_->stream(module_);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    for (const at::Tensor& sample : slots_[i].list.tensors(describe())) {
      const bool bytes = sample.defined() && sample.layout() == c10::kStrided;
      store_->spool().admit(*stream, bytes ? static_cast<std::int64_t>(sample.nbytes()) : 0,
                            storage::WhenFull::wait);
      stream->append(sample, spooled_slot(static_cast<std::int64_t>(i)));
    }
    slots_[i].list = SampleList();
    count_held();
  }
  stream_ = stream;
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
  return stream_;
}

void Record::refuse_spooled(const char* call) const {
  TORCH_CHECK_VALUE(store_ == nullptr || !store_->spooling(), call, ": ", describe(),
                    ": samples are spooled to \"", store_->spool().directory(),
                    "\", where they stay as they are; save() that, and read it with "
                    "storage::load.");
}

}  // namespace torchtap::recorders::detail
