// Folds the tensors of an event into the reductions of a record, from one thread or several.
#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/detail/together.hpp>

namespace torchtap::recorders::detail {

/// Called under the lock. Compiled into its caller, as most events have one tensor for one slot.
C10_ALWAYS_INLINE void Record::fold_in_turn(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot,
                                            bool prepared) {
  if (samples.size() != 1 || first_slot >= slots_.size()) {
    fold_together(samples, first_slot, prepared);
  } else {
    SlotData& slot = slots_[first_slot];
    if (slot.fixed.has_value()) slot_to_fold(first_slot);  // throws, even if there is nothing to fold
    if (samples[0].defined()) {
      if (prepared) {
        slot.sink->update(samples[0]);
      } else {
        slot.sink->update(prepare(samples[0]));
      }
    }
  }
  ++recorded_;
  if (options->condition()) {  // threads with their own sinks may add to it without the lock
    samples_.fetch_add(1, std::memory_order_relaxed);
  } else {
    samples_.store(samples_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
}

/// `prepared`: the samples are as the options say.
void Record::fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared) {
  for (const at::Tensor& sample : samples) {
    if (sample.defined() && !sample.is_cpu()) return fold_from_device(samples, first_slot, prepared);
  }
  if (!plain_) {
    if (own_reduction_ || !prepared) return fold_own(samples, first_slot, prepared);
    const std::lock_guard lock(mutex_);
    return fold_in_turn(samples, first_slot, prepared);
  }
  // A single thread never needs thread sinks.
  ThreadSinks* others = thread_sinks_.load(std::memory_order_acquire);
  if (others == nullptr && mutex_.try_lock()) {
    const std::lock_guard lock(mutex_, std::adopt_lock);
    return fold_in_turn(samples, first_slot, prepared);
  }
  fold_beside(samples, first_slot, prepared, others == nullptr ? thread_sinks() : *others);
}

/// Where a transform or the reduction is code of the program's, which may ask for what was recorded.
void Record::fold_own(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared) {
  std::optional<Turn> turn;
  c10::SmallVector<at::Tensor, 2> ready;
  if (!prepared) {
    turn.emplace(*this);
    for (const at::Tensor& sample : samples) ready.push_back(prepare(sample));
    samples = ready;
  }
  if (!commutative_) {
    const Lock lock(*this);
    return fold_in_turn(samples, first_slot, /*prepared=*/true);
  }
  ThreadSinks* const others = thread_sinks_.load(std::memory_order_acquire);
  if (others == nullptr) {
    if (const Lock lock(*this, std::try_to_lock); lock)
      return fold_in_turn(samples, first_slot, /*prepared=*/true);
  }
  {
    const OwnCode own(*this, OwnCode::What::beside);
    std::atomic<std::int64_t>* const events = options->condition() ? &samples_ : nullptr;
    if ((others == nullptr ? thread_sinks() : *others).update(samples, first_slot, events)) return;
  }
  const Lock lock(*this);
  open_thread_sinks(samples, first_slot);
}

/// Folds into the sinks of this thread.
void Record::fold_beside(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared,
                         ThreadSinks& others) {
  c10::SmallVector<at::Tensor, 2> ready;
  if (!prepared) {
    for (const at::Tensor& sample : samples) ready.push_back(prepare(sample));
    samples = ready;
  }
  // A condition is told the number for every event, so all threads would read all their counters.
  std::atomic<std::int64_t>* const events = options->condition() ? &samples_ : nullptr;
  if (others.update(samples, first_slot, events)) return;
  const std::lock_guard lock(mutex_);
  open_thread_sinks(samples, first_slot);
}

/// Called under the lock. Folds the tensors of one event, all of them or none.
void Record::fold_together(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared) {
  c10::SmallVector<at::Tensor, 2> ready;
  for (const at::Tensor& sample : samples) ready.push_back(prepared ? sample : prepare(sample));
  NewSlots added(slots_);
  for (std::size_t i = 0; i < samples.size(); ++i) slot_to_fold(first_slot + i);
  c10::SmallVector<Update, 2> updates;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (ready[i].defined()) updates.push_back({&slots_[first_slot + i].sink, &ready[i]});
  }
  update_together(updates);
  added.kept = true;
}

/// Called under the lock. Folds prepared samples, and makes thread sinks for the next ones of this thread.
void Record::open_thread_sinks(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  NewSlots added(slots_);
  for (std::size_t i = 0; i < samples.size(); ++i) slot_to_fold(first_slot + i);
  c10::SmallVector<Update, 2> updates;  // of slots without samples
  c10::SmallVector<std::pair<std::size_t, std::unique_ptr<core::Sink>>, 2> beside;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].defined()) continue;
    SlotData& slot = slots_[first_slot + i];
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
    if (!thread_sinks().put(sink, index)) slots_[index].sink->merge(*sink);
  }
  added.kept = true;
  ++recorded_;  // readers merge the thread sinks first
  samples_.fetch_add(1, std::memory_order_relaxed);
}

SlotData& Record::slot_to_fold(std::size_t index) {
  while (slots_.size() <= index) slots_.push_back(make_slot());
  TORCH_CHECK_VALUE(
      !slots_[index].fixed.has_value(), describe(),
      ": the recorded value was set by hand, and the reduction cannot continue from it; call reset() to "
      "start again, or detach() to keep it.");
  return slots_[index];
}

ThreadSinks& Record::thread_sinks() {
  std::call_once(thread_sinks_once_, [this] {
    thread_sinks_owner_ = std::make_unique<ThreadSinks>();
    thread_sinks_.store(thread_sinks_owner_.get(), std::memory_order_release);
  });
  return *thread_sinks_owner_;
}

/// Called under the lock. Moves everything that was recorded to `slots_`, and its number of samples to
/// `recorded_`.
void Record::settle() const {
  merge_thread_sinks();
  if (!device_slots_.empty()) settle_devices();
}

void Record::merge_thread_sinks() const {
  ThreadSinks* const others = thread_sinks_.load(std::memory_order_acquire);
  if (others == nullptr) return;
  c10::SmallVector<core::Sink*, 2> sinks;
  for (const SlotData& slot : slots_) sinks.push_back(slot.sink.get());
  try {
    others->merge_into(sinks, recorded_);
  } catch (c10::Error& error) {
    error.add_context(c10::str("while merging what several threads recorded of ", describe()));
    throw;
  }
}

/// Called under the lock. Empties the thread sinks, what devices have, and `recorded_`, and returns how many
/// samples they had. The caller subtracts this number from `samples_`, because other threads may record at
/// the same time.
std::int64_t Record::forget_samples() {
  forget_devices();
  std::int64_t samples = recorded_;
  if (ThreadSinks* const others = thread_sinks_.load()) samples += others->clear();
  recorded_ = 0;
  return samples;
}

}  // namespace torchtap::recorders::detail
