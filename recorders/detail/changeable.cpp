// Replaces, discards and merges what was recorded.
#include <algorithm>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/changeable.hpp>

namespace torchtap::recorders::detail {

void Changeable::set(const core::Value& value) {
  const Slots::Lock lock(slots_);
  refuse_spooled("recorders::Subrecorder::set");
  taker().settle();
  struct Changed {  // also if it throws
    Taker& taker;
    ~Changed() { taker.slots_changed(); }
  } changed{taker()};
  auto& list = slots_.list;
  const auto longest = [&] {
    std::int64_t most = 0;
    for (const SlotData& slot : list) most = std::max(most, slot.list.size());
    return most;
  };
  const std::int64_t before = longest();
  const auto put = [&](SlotData& slot, const core::Value& part) {
    if (slot.sink == nullptr) {
      SampleList samples;
      for (const auto& tensor : part.tensors()) samples.append_copy(tensor);
      slot.list = std::move(samples);
    } else if (!part.is_tensor() || !slot.sink->assign(part.tensor())) {
      slot.fixed = part;
    }
  };
  if (options().all_tensors()) {
    TORCH_CHECK_VALUE(value.is_dict() && value.dict().size() == list.size(), describe(),
                      ": all tensors are recorded, so the value has to be a dict of ", list.size(),
                      " slots; got ", value.describe(), ".");
    for (std::size_t i = 0; i < list.size(); ++i) put(list[i], value.at(std::to_string(i)));
  } else {
    put(list[0], value);
  }
  if (options().reduction() != nullptr || longest() == before) return;
  slots_.samples += longest() - slots_.recorded;  // each item of a list is one
  slots_.recorded = longest();
}

void Changeable::apply(const std::function<at::Tensor(const at::Tensor&, std::int64_t)>& function) {
  refuse_spooled("recorders::Subrecorder::apply");
  const std::int64_t count = samples();
  const core::Value before = value();
  if (before.is_none()) return;
  // Outside of the lock, because `function` is the caller's code.
  set(mapped(before,
             [&](const at::Tensor& tensor) { return tensor.defined() ? function(tensor, count) : tensor; }));
}

void Changeable::reset() {
  std::vector<SlotData> former;
  const Slots::Lock lock(slots_);
  refuse_spooled("recorders::Subrecorder::reset");
  slots_.samples.fetch_sub(forget_samples());
  former = forget_rest();
}

core::Value Changeable::take() {
  std::vector<SlotData> former;
  const Slots::Lock lock(slots_);
  refuse_spooled("recorders::Subrecorder::take");
  taker().settle();
  core::Value value = value_here();
  // What the taker has is not discarded: samples that threads add after it settled belong to the next value.
  slots_.samples.fetch_sub(std::exchange(slots_.recorded, 0));
  former = forget_rest();
  return value;
}

/// Called under the lock. Discards what the taker has, and `recorded`, and returns how many samples that
/// were. The caller subtracts this number, because other threads may record at the same time.
std::int64_t Changeable::forget_samples() {
  const std::int64_t unsettled = taker().forget();  // first, because it may correct `recorded`
  return unsettled + std::exchange(slots_.recorded, 0);
}

/// Called under the lock, when the samples are forgotten: everything else. What it returns is destroyed
/// outside of the lock, because that may run code of the program's.
std::vector<SlotData> Changeable::forget_rest() {
  std::vector<SlotData> former = std::exchange(slots_.list, {});
  taker().slots_changed();
  if (!options().all_tensors()) slots_.list.push_back(slots_.fresh_slot());
  taker().restart();
  slots_.counts.put({});
  return former;
}

void Changeable::put(RecordData data) {
  const Slots::Lock lock(slots_);
  refuse_spooled("restore");
  slots_.samples.fetch_add(data.samples - forget_samples());
  slots_.recorded = data.samples;
  std::swap(slots_.list, data.slots);  // the former ones are destroyed outside of the lock
  slots_.counts.put(std::move(data.not_recorded));
  taker().slots_changed();
}

void Changeable::merge(const RecordData& theirs) {
  const Slots::Lock lock(slots_);
  refuse_spooled("merge");
  taker().settle();
  if (options().reduction() == nullptr) {
    join(slots_, slots_.list, theirs.slots);
  } else {  // with copies, because one of several slots may throw
    RecordData mine = RecordData::copied(slots_);
    join(slots_, mine.slots, theirs.slots);
    slots_.list = std::move(mine.slots);
  }
  slots_.recorded += theirs.samples;
  slots_.samples.fetch_add(theirs.samples);
  slots_.counts.add(theirs.not_recorded);
  taker().slots_changed();
}

RecordData Changeable::load(SnapshotReader& snapshot) const {
  refuse_spooled("restore");
  return RecordData::load(slots_, snapshot);
}

}  // namespace torchtap::recorders::detail
