// Folds tensors on a device, which adds them up by itself where it can, also in CUDA graphs.
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <optional>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/detail/together.hpp>

namespace torchtap::recorders::detail {

/// While a graph is captured: throws unless its replays can record by themselves.
void Record::check_capture(const at::Tensor& sample) const {
  if (!sample.defined() || sample.is_cpu() || !base::is_capturing(sample.device())) return;
  const RecorderOptions& how = *options;
  const char* const what = how.reduction() == nullptr   ? "keeps samples"
                           : how.condition()            ? "has a condition, which a replay does not ask"
                           : how.transform() != nullptr ? "has a transform, which a replay does not call"
                           : how.device().has_value()   ? "moves samples to another device"
                           : !how.with().empty()        ? "pairs samples with companions"
                           : how.stream() != nullptr    ? "sends results"
                                                        : nullptr;
  TORCH_CHECK_NOT_IMPLEMENTED(what == nullptr, describe(), ": a stream of ", sample.device(),
                              " captures a graph, in whose replays no hook is called, and this recorder ",
                              what,
                              "; record a reduction, or detach the recorder while the graph is captured.");
}

/// Folds the tensors of one event, all of them or none. Those that are not added up on their device are
/// folded by their sinks.
void Record::fold_from_device(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, bool prepared) {
  std::optional<Turn> turn;
  if (!prepared) turn.emplace(*this);
  c10::SmallVector<at::Tensor, 2> ready;
  for (const at::Tensor& sample : samples) ready.push_back(prepared ? sample : prepare(sample));
  const Lock lock(*this);
  NewSlots added(slots_);
  bool captures = false;
  c10::SmallVector<std::size_t, 2> taken, others;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const at::Tensor& sample = ready[i];
    const std::size_t index = first_slot + i;
    SlotData& slot = slot_to_fold(index);
    if (!sample.defined()) continue;
    captures = captures || (!sample.is_cpu() && base::is_capturing(sample.device()));
    if (device_slots_.size() <= index) device_slots_.resize(index + 1);
    auto& sum = device_slots_[index].sum;
    if (sum == nullptr && !sample.is_cpu()) sum = slot.sink->accumulator();
    if (sum != nullptr && sum->accepts(sample, *slot.sink, captures)) {
      taken.push_back(i);
    } else {
      others.push_back(i);
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !captures || others.empty(), describe(), ": a stream of ",
      ready[others.empty() ? 0 : others[0]].device(),
      " captures a graph, whose replays can record only what fused kernels add up: "
      "torchtap::cuda::enable_fused_kernels(), and Sum, Mean, Moments, Min, Max, AbsMax, Norm, "
      "EMA, Count, Histogram of a given range, LogHistogram or a Series of them, over rows or over all, of "
      "floating numbers, or one of these inside of where; got ",
      options->reduction()->describe(), " of ", ready[others.empty() ? 0 : others[0]].toString(),
      ". Use these, or detach the recorder while the graph is captured.");
  c10::SmallVector<Update, 2> updates;
  for (const std::size_t i : others) {
    SlotData& slot = slots_[first_slot + i];
    if (!device_slots_[first_slot + i].device.has_value()) {
      updates.push_back({&slot.sink, &ready[i]});
    } else {
      update_apart(slot, ready[i]);
    }
  }
  if (!updates.empty()) update_together(updates);
  for (const std::size_t i : taken) {
    core::Accumulator& sum = *device_slots_[first_slot + i].sum;
    if (sum.may_wait() && may_be_late(ready[i])) {
      store_->late()->put(sum, ready[i], captures, shared_from_this(), forwards_ ? &*forwards_ : nullptr);
      continue;
    }
    if (batch_ == nullptr) batch_ = sum.batch();
    sum.put(ready[i], *batch_, captures);
  }
  if (batch_ != nullptr && batch_->size() != 0) batch_->launch();
  added.kept = true;
  for (const std::size_t i : taken) {
    DeviceSlot& slot = device_slots_[first_slot + i];
    slot.device = ready[i].device();
    slot.added += captures ? 0 : 1;
  }
  if (captures) {
    captured_.store(true, std::memory_order_relaxed);
    return;  // a replay is a sample
  }
  ++recorded_;
  samples_.fetch_add(1, std::memory_order_relaxed);
}

/// Whether this sample may wait. The first one does not: afterwards it is known whether the program changes
/// it.
bool Record::may_be_late(const at::Tensor& sample) {
  if (store_ == nullptr || store_->late() == nullptr || options->all_tensors()) return false;
  if (!may_wait_) {
    may_wait_ = true;
    if (!store_->late()->watch(sample, shared_from_this(), forwards_ ? &*forwards_ : nullptr))
      first_.emplace(sample);
    return false;
  }
  if (first_) {
    if (first_->changed()) be_on_time();
    first_.reset();
  }
  return !on_time_.load() && Version(sample).known();
}

void Record::lose_late(const char* why, bool counted) noexcept {
  be_on_time();
  if (counted) {
    lost_.fetch_add(1);
    samples_.fetch_sub(1);
  }
  try {
    counts_.leave_out(c10::str(why, " (RecorderOptions::defer); do not defer here."));
  } catch (...) {  // no memory for the words
  }
}

/// Folds a sample whose device may not be that of the sink's state.
void Record::update_apart(SlotData& slot, const at::Tensor& sample) const {
  const base::RecordingMode quiet;
  const auto part = slot.sink->fresh();
  part->update(sample);
  slot.sink->merge(*part);
}

/// Called under the lock. Moves what devices have to the sinks, and counts the samples of graphs.
void Record::settle_devices() const {
  if (store_ != nullptr && store_->late() != nullptr) store_->late()->launch();
  const std::int64_t lost = lost_.exchange(0);
  recorded_ -= lost;
  device_slots_.front().added -= lost;
  std::int64_t replays = 0;
  for (std::size_t i = 0; i < device_slots_.size(); ++i) {
    DeviceSlot& one = device_slots_[i];
    if (one.sum == nullptr || (one.added == 0 && !captured_.load(std::memory_order_relaxed))) continue;
    while (slots_.size() <= i) slots_.push_back(make_slot());
    const std::int64_t samples = one.sum->settle(slots_[i].sink.get());
    if (samples != 0) slots_[i].device = one.device;
    const std::int64_t of_events = std::min(samples, one.added);
    one.added -= of_events;
    replays = std::max(replays, samples - of_events);
  }
  recorded_ += replays;
  samples_.fetch_add(replays);
}

void Record::settle_graphs() const noexcept {
  try {
    const Lock lock(*this);
    if (!device_slots_.empty()) settle_devices();
  } catch (...) {  // a reader of results is told
  }
}

/// Called under the lock. Discards what devices have.
void Record::forget_devices() {
  if (device_slots_.empty()) return;
  if (store_ != nullptr && store_->late() != nullptr) store_->late()->launch();
  recorded_ -= lost_.exchange(0);
  if (!captured_.load(std::memory_order_relaxed)) return device_slots_.clear();
  for (DeviceSlot& one : device_slots_) {  // graphs go on writing to them
    if (one.sum != nullptr) (void)one.sum->settle(nullptr);
    one.added = 0;
  }
}

}  // namespace torchtap::recorders::detail
