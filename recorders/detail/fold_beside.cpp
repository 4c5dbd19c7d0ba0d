// Folds samples of several threads, and merges what they have.
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/fold_beside.hpp>
#include <torchtap/recorders/detail/together.hpp>

namespace torchtap::recorders::detail {

FoldBeside::FoldBeside(Slots& slots, Prepare& prepare)
    : Fold(slots, prepare), events_(slots.options->condition() ? &slots.samples : nullptr) {}

Taker::Took FoldBeside::take(const hooks::Event& /*event*/, c10::ArrayRef<at::Tensor> tensors,
                             std::size_t first_slot) {
  return prepared(tensors, [&](c10::ArrayRef<at::Tensor> samples) { FoldBeside::fold(samples, first_slot); });
}

void FoldBeside::fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  ThreadSinks* const others = this->others();
  if (others == nullptr && slots_.mutex.try_lock()) {
    const std::lock_guard lock(slots_.mutex, std::adopt_lock);
    return fold_in_turn(samples, first_slot);
  }
  if (fold_into(others, samples, first_slot)) return;
  const std::lock_guard lock(slots_.mutex);
  open(samples, first_slot);
}

bool FoldBeside::fold_into(ThreadSinks* others, c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  return (others == nullptr ? thread_sinks() : *others).update(samples, first_slot, events_);
}

void FoldBeside::open(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  Slots::Added added(slots_.list);
  for (std::size_t i = 0; i < samples.size(); ++i) (void)slots_.to_fold(first_slot + i);
  c10::SmallVector<Update, 2> updates;  // of slots without samples
  c10::SmallVector<std::pair<std::size_t, std::unique_ptr<core::Sink>>, 2> beside;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].defined()) continue;
    SlotData& slot = slots_.list[first_slot + i];
    if (slot.sink->count() == 0) {
      updates.push_back({&slot.sink, &samples[i]});
      continue;
    }
    (void)slot.sink->check(samples[i]);  // says that the sample is at fault, which a merge cannot
    auto sink = slot.sink->fresh();
    sink->update(samples[i]);
    slot.sink->clone()->merge(*sink);  // throws if the sample is incompatible with earlier ones
    beside.emplace_back(first_slot + i, std::move(sink));
  }
  update_together(updates);
  for (auto& [index, sink] : beside) {
    if (!thread_sinks().put(sink, index)) slots_.list[index].sink->merge(*sink);
  }
  added.kept = true;
  ++slots_.recorded;  // readers merge the thread sinks first
  slots_.samples.fetch_add(1, std::memory_order_relaxed);
}

ThreadSinks& FoldBeside::thread_sinks() {
  std::call_once(once_, [this] {
    owner_ = std::make_unique<ThreadSinks>();
    sinks_.store(owner_.get(), std::memory_order_release);
  });
  return *owner_;
}

void FoldBeside::settle() {
  ThreadSinks* const others = this->others();
  if (others == nullptr) return;
  c10::SmallVector<core::Sink*, 2> sinks;
  for (const SlotData& slot : slots_.list) sinks.push_back(slot.sink.get());
  try {
    others->merge_into(sinks, slots_.recorded);
  } catch (c10::Error& error) {
    error.add_context(c10::str("while merging what several threads recorded of ", slots_.describe()));
    throw;
  }
}

// Other threads may record at the same time, so the caller subtracts this number.
std::int64_t FoldBeside::forget() {
  ThreadSinks* const others = this->others();
  return others == nullptr ? 0 : others->clear();
}

std::int64_t FoldBeside::samples() const noexcept {
  const std::int64_t counted = slots_.samples.load();  // first: samples that are forgotten are subtracted
  ThreadSinks* const others = this->others();
  return others == nullptr ? counted : counted + others->folded();
}

}  // namespace torchtap::recorders::detail
