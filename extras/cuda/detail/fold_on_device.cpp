// Folds tensors on a device, which adds them up by itself where it can, also in CUDA graphs.
#include <algorithm>
#include <utility>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/cuda/detail/fold_on_device.hpp>

namespace torchtap::cuda::detail {

FoldOnDevice::FoldOnDevice(Slots& slots, Prepare& prepare, std::unique_ptr<Fold> inner,
                           std::shared_ptr<Late> late, std::weak_ptr<const void> owner,
                           const std::shared_ptr<const hooks::Forwards>& forwards)
    : Fold(slots, prepare),
      inner_(std::move(inner)),
      late_(std::move(late)),
      owner_(std::move(owner)),
      forwards_(forwards) {}

namespace {

bool any_on_device(c10::ArrayRef<at::Tensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& one) { return one.defined() && !one.is_cpu(); });
}

}  // namespace

recorders::extend::Taker::Took FoldOnDevice::take(const hooks::Event& event,
                                                  c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) {
  return any_on_device(tensors) ? Fold::take(event, tensors, first_slot)
                                : inner_->take(event, tensors, first_slot);
}

/// Those that are not added up on their device are folded by their sinks.
void FoldOnDevice::fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  if (!any_on_device(samples)) return inner_->fold(samples, first_slot);
  const Slots::Lock lock(slots_);
  Slots::Added added(slots_.list);
  Chosen taken, others;
  const bool captures = choose(samples, first_slot, taken, others);
  update_apart(samples, first_slot, others);
  add_up(samples, first_slot, taken, captures);
  added.kept = true;
  for (const std::size_t i : taken) {
    DeviceSlot& slot = device_slots_[first_slot + i];
    slot.device = samples[i].device();
    slot.added += captures ? 0 : 1;
  }
  if (captures) {
    captured_.store(true, std::memory_order_relaxed);
    return;  // a replay is a sample
  }
  ++slots_.recorded;
  slots_.samples.fetch_add(1, std::memory_order_relaxed);
}

/// Returns whether a graph is captured.
bool FoldOnDevice::choose(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, Chosen& taken,
                          Chosen& others) {
  bool captures = false;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const at::Tensor& sample = samples[i];
    recorders::extend::SlotData& slot = slots_.to_fold(first_slot + i);
    if (!sample.defined()) continue;
    captures = captures || (!sample.is_cpu() && base::is_capturing(sample.device()));
    if (device_slots_.size() <= first_slot + i) device_slots_.resize(first_slot + i + 1);
    auto& sum = device_slots_[first_slot + i].sum;
    if (sum == nullptr && !sample.is_cpu()) sum = Pages::of(*slot.sink);
    const bool added_up = sum != nullptr && sum->accepts(sample, *slot.sink, captures);
    (added_up ? taken : others).push_back(i);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !captures || others.empty(), slots_.describe(), ": a stream of ",
      samples[others.empty() ? 0 : others[0]].device(),
      " captures a graph, whose replays can record only what fused kernels add up: "
      "torchtap::cuda::enable_fused_kernels(), and Sum, Mean, Moments, Min, Max, AbsMax, Norm, "
      "EMA, Count, Histogram of a given range, LogHistogram or a Series of them, over rows or over all, of "
      "floating numbers, or one of these inside of where; got ",
      slots_.options->reduction()->describe(), " of ", samples[others.empty() ? 0 : others[0]].toString(),
      ". Use these, or detach the recorder while the graph is captured.");
  return captures;
}

void FoldOnDevice::update_apart(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot,
                                const Chosen& others) {
  c10::SmallVector<recorders::extend::Update, 2> updates;
  for (const std::size_t i : others) {
    recorders::extend::SlotData& slot = slots_.list[first_slot + i];
    if (!device_slots_[first_slot + i].device.has_value()) {
      updates.push_back({&slot.sink, &samples[i]});
      continue;
    }
    const base::RecordingMode quiet;  // the device of the sample may not be that of the sink's state
    const auto part = slot.sink->fresh();
    part->update(samples[i]);
    slot.sink->merge(*part);
  }
  if (!updates.empty()) recorders::extend::update_together(updates);
}

void FoldOnDevice::add_up(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot, const Chosen& taken,
                          bool captures) {
  for (const std::size_t i : taken) {
    Pages& sum = *device_slots_[first_slot + i].sum;
    if (sum.may_wait() && may_be_late(samples[i])) {
      late_->put(sum, samples[i], captures, shared(), forwards_.get());
      continue;
    }
    sum.put(samples[i], batch_, captures);
  }
  if (batch_.size() != 0) batch_.launch();
}

/// Whether this sample may wait. The first one does not: afterwards it is known whether the program changes
/// it.
bool FoldOnDevice::may_be_late(const at::Tensor& sample) {
  if (late_ == nullptr || slots_.options->all_tensors()) return false;
  if (!may_wait_) {
    may_wait_ = true;
    if (!late_->watch(sample, shared(), forwards_.get())) first_.emplace(sample);
    return false;
  }
  if (first_) {
    if (first_->changed()) be_on_time();
    first_.reset();
  }
  return !on_time_.load() && Version(sample).known();
}

void FoldOnDevice::lose_late(const char* why, bool counted) noexcept {
  be_on_time();
  if (counted) {
    lost_.fetch_add(1);
    slots_.samples.fetch_sub(1);
  }
  try {
    slots_.counts.leave_out(c10::str(why, " (RecorderOptions::defer); do not defer here."));
  } catch (...) {  // no memory for the words
  }
}

/// Moves what devices have to the sinks, and counts the samples of graphs.
void FoldOnDevice::settle() {
  inner_->settle();
  if (device_slots_.empty()) return;
  if (late_ != nullptr) late_->launch();
  const std::int64_t lost = lost_.exchange(0);
  slots_.recorded -= lost;
  device_slots_.front().added -= lost;
  std::int64_t replays = 0;
  for (std::size_t i = 0; i < device_slots_.size(); ++i) {
    DeviceSlot& one = device_slots_[i];
    if (one.sum == nullptr || (one.added == 0 && !captured_.load(std::memory_order_relaxed))) continue;
    while (slots_.list.size() <= i) slots_.list.push_back(slots_.fresh_slot());
    const std::int64_t samples = one.sum->settle(slots_.list[i].sink.get());
    if (samples != 0) slots_.list[i].device = one.device;
    const std::int64_t of_events = std::min(samples, one.added);
    one.added -= of_events;
    replays = std::max(replays, samples - of_events);
  }
  slots_.recorded += replays;
  slots_.samples.fetch_add(replays);
}

std::int64_t FoldOnDevice::forget() {
  const std::int64_t unsettled = inner_->forget();
  if (device_slots_.empty()) return unsettled;
  if (late_ != nullptr) late_->launch();
  slots_.recorded -= lost_.exchange(0);
  if (!captured_.load(std::memory_order_relaxed)) {
    device_slots_.clear();
    return unsettled;
  }
  for (DeviceSlot& one : device_slots_) {  // graphs go on writing to them
    if (one.sum != nullptr) (void)one.sum->settle(nullptr);
    one.added = 0;
  }
  return unsettled;
}

std::int64_t FoldOnDevice::samples() const noexcept {
  if (captured_.load(std::memory_order_relaxed)) settle_graphs();
  return inner_->samples();
}

void FoldOnDevice::settle_graphs() const noexcept {
  try {
    const Slots::Lock lock(slots_);
    const_cast<FoldOnDevice*>(this)->settle();
  } catch (...) {  // a reader of results is told
  }
}

namespace {

class Devices final : public recorders::extend::OnDevices {
 public:
  explicit Devices(std::int64_t defer) : late_(defer > 0 ? std::make_shared<Late>(defer) : nullptr) {}
  std::unique_ptr<Fold> around(Slots& slots, Prepare& prepare, std::unique_ptr<Fold> inner,
                               std::weak_ptr<const void> owner,
                               const std::shared_ptr<const hooks::Forwards>& forwards) override {
    return std::make_unique<FoldOnDevice>(slots, prepare, std::move(inner), late_, std::move(owner),
                                          forwards);
  }

 private:
  const std::shared_ptr<Late> late_;  // of all modules
};

}  // namespace

std::shared_ptr<recorders::extend::OnDevices> on_devices(const recorders::RecorderOptions& options) {
  return std::make_shared<Devices>(options.defer());
}

}  // namespace torchtap::cuda::detail
