// Counts the bytes of kept samples, and moves them to the spool when there are too many.
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/keep_within.hpp>

namespace torchtap::recorders::detail {

KeepWithin::KeepWithin(Slots& slots, Prepare& prepare, std::shared_ptr<Store> store, std::int64_t module)
    : Keep(slots, prepare), store_(std::move(store)), module_(module), stream_(store_->stream(module)) {}

KeepWithin::~KeepWithin() {
  store_->held.fetch_sub(held_);
}

bool KeepWithin::keep(Samples& samples, std::size_t first_slot) {
  const std::int64_t bytes = check(samples);
  if (stream_ == nullptr && slots_.options->memory_budget() && !within_budget(bytes)) return false;
  add_slots(first_slot + samples.size());
  if (stream_ != nullptr) {
    if (!store_->spool().admit(*stream_, bytes)) return false;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      stream_->append(samples[i], spooled_slot(first_slot + i));
    }
    return true;
  }
  struct CountHeld {  // also if it throws
    KeepWithin& keeper;
    ~CountHeld() { keeper.count_held(); }
  } count{*this};
  append(samples, first_slot);
  return true;
}

void KeepWithin::pad(std::size_t slot, std::int64_t count) {
  if (stream_ == nullptr) return Keep::pad(slot, count);
  for (std::int64_t i = 0; i < count; ++i) stream_->append({}, spooled_slot(slot));
}

/// Whether samples of `bytes` bytes may be recorded. If the budget is used up, opens the spool and sets
/// `stream_`.
bool KeepWithin::within_budget(std::int64_t bytes) {
  const std::int64_t budget = *slots_.options->memory_budget();
  if (!store_->spooling()) {
    if (store_->held.load() + bytes <= budget) return true;
    if (slots_.options->spool_directory().empty()) {
      TORCH_CHECK(
          slots_.options->over_budget() == OverBudget::drop, slots_.describe(), ": the memory budget of ",
          budget, " bytes is used up: ", store_->held.load(), " bytes are kept, and a sample of ", bytes,
          " bytes arrived. It was not recorded; all before it are. Save or reset the recorder, reduce the "
          "samples, or have them spooled (recorders::RecorderOptions::spool, or memory_budget with a "
          "directory).");
      return false;
    }
    store_->spill();
  }
  move_to_spool();
  return stream_ != nullptr;
}

/// Called under the lock. If it throws, the samples that were not moved stay in memory; so do those of a
/// module that was removed before.
void KeepWithin::move_to_spool() {
  auto* stream = store_->stream(module_);
  if (stream == nullptr) return;
  for (std::size_t i = 0; i < slots_.list.size(); ++i) {
    const std::vector<at::Tensor> samples = slots_.list[i].list.tensors(slots_.describe());
    std::size_t moved = 0;
    const auto keep_the_rest = [&] {
      SampleList rest;
      for (; moved < samples.size(); ++moved) {
        rest.append(samples[moved], /*shared=*/slots_.options->capture() == Capture::alias);
      }
      slots_.list[i].list = std::move(rest);
      count_held();
    };
    try {
      for (; moved < samples.size(); ++moved) {
        const at::Tensor& sample = held_or_left_out(samples[moved]);
        const bool bytes = sample.defined();
        store_->spool().admit(*stream, bytes ? static_cast<std::int64_t>(sample.nbytes()) : 0,
                              storage::WhenFull::wait);
        stream->append(sample, spooled_slot(i));
      }
    } catch (...) {
      keep_the_rest();
      throw;
    }
    keep_the_rest();  // none
  }
  stream_ = stream;
}

storage::Spool::Stream* KeepWithin::spooled() {
  if (!store_->spooling()) return nullptr;
  const std::lock_guard lock(slots_.mutex);
  if (stream_ == nullptr) move_to_spool();
  return stream_;
}

std::optional<std::int64_t> KeepWithin::spooled_slot(std::size_t slot) const {
  return slots_.options->all_tensors() ? std::optional(static_cast<std::int64_t>(slot)) : std::nullopt;
}

void KeepWithin::count_held() noexcept {
  std::int64_t now = 0;
  for (const SlotData& slot : slots_.list) now += slot.list.bytes();
  store_->held.fetch_add(now - held_);
  held_ = now;
}

}  // namespace torchtap::recorders::detail
