// Reads, saves, sets and resets the values of a record.
#include <algorithm>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::recorders::detail {

namespace {

/// The results of the sink, where its samples were.
core::Results results_of(const SlotData& slot) {
  core::Results results = slot.sink->results();
  if (!slot.device.has_value()) return results;
  const base::RecordingMode quiet;
  core::Results there;
  for (const auto& [name, tensor] : results) there.set(name, tensor.to(*slot.device));
  return there;
}

}  // namespace

core::Value Record::value_of(const SlotData& slot) const {
  if (slot.fixed.has_value()) return *slot.fixed;
  if (slot.sink == nullptr) {
    return slot.list.size() == 0 ? core::Value() : core::Value(slot.list.tensors(describe()));
  }
  return core::to_value(results_of(slot));
}

core::Value Record::value_of(const std::vector<SlotData>& slots) const {
  if (!options->all_tensors()) return value_of(slots[0]);
  if (slots.empty()) return {};
  core::Value::Dict dict;
  for (std::size_t i = 0; i < slots.size(); ++i) dict.emplace_back(std::to_string(i), value_of(slots[i]));
  return dict;
}

core::Value Record::value() const {
  if (auto* stream = spooled()) return store_->spool().value(*stream);
  return value_of(copied().slots);
}

core::Results Record::results() const {
  TORCH_CHECK_VALUE(!options->all_tensors(), describe(),
                    ": all tensors are recorded, so there is not one value; call slot(i).");
  TORCH_CHECK_VALUE(options->reduction() != nullptr, describe(),
                    ": every sample is kept, nothing is reduced; call tensors().");
  const RecordData now = copied();
  const SlotData& slot = now.slots[0];
  if (!slot.fixed.has_value()) return results_of(slot);
  core::Results results;
  if (slot.fixed->is_tensor()) return core::Results{{"value", slot.fixed->tensor()}};
  for (const auto& [name, value] : slot.fixed->dict()) results.set(name, value.tensor());
  return results;
}

namespace {

/// The saved states of the reductions, slot by slot; nothing unless all of them can be saved.
std::vector<core::SavedSink> saved(const std::vector<SlotData>& slots) {
  std::vector<core::SavedSink> all;
  for (const auto& slot : slots) {
    if (slot.sink == nullptr || slot.fixed.has_value()) return {};
    auto one = core::save(*slot.sink);
    if (!one.has_value()) return {};
    all.push_back(std::move(*one));
  }
  return all;
}

/// The value with nothing in place of tensors that files cannot hold, for which it calls `lost`.
core::Value holdable(const core::Value& value, const std::function<void(const at::Tensor&)>& lost) {
  if (value.is_tensor() && !storage::can_hold(value.tensor())) {
    lost(value.tensor());
    return at::Tensor();
  }
  if (value.is_list()) {
    core::Value::List list;
    for (const auto& item : value.list()) list.push_back(holdable(item, lost));
    return list;
  }
  if (value.is_dict()) {
    core::Value::Dict dict;
    for (const auto& [key, item] : value.dict()) dict.emplace_back(key, holdable(item, lost));
    return dict;
  }
  return value;
}

}  // namespace

storage::Entry Record::entry() const {
  refuse_spooled("recorders::Recorder::entries");
  storage::Entry entry;
  static_cast<storage::EntryId&>(entry) = id;
  if (options->reduction() != nullptr) entry.reduction = options->reduction()->describe();
  const RecordData now = copied();
  entry.samples = now.samples;
  entry.note = words();
  entry.not_recorded = now.not_recorded;
  if (entry.samples == 0) return entry;
  entry.value = holdable(value_of(now.slots), [&](const at::Tensor& tensor) {
    core::NotRecorded one;
    one.none = 1;
    one.why_left_out = why_not_held(tensor);
    entry.not_recorded += one;
  });
  entry.state = saved(now.slots);
  return entry;
}

std::int64_t Record::slots() const noexcept {
  if (!options->all_tensors()) return 1;
  if (own_reduction_ && OwnCode::runs(*this, OwnCode::What::beside))
    return thread_sinks_.load()->slots_here();
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!own_reduction_ || !OwnCode::runs(*this, OwnCode::What::reduction)) lock.lock();
  return static_cast<std::int64_t>(slots_.size());
}

core::Value Record::slot(std::int64_t index) const {
  if (spooled() != nullptr && index >= 0 && index < slots()) {
    const core::Value all = value();
    return options->all_tensors() ? all.at(std::to_string(index)) : all;
  }
  const SlotData slot = [&] {
    const Lock lock(*this);
    settle();
    TORCH_CHECK_INDEX(index >= 0 && index < static_cast<std::int64_t>(slots_.size()), describe(), ": slot ",
                      index, " was asked for, but ", slots_.size(), " were seen.");
    return slots_[static_cast<std::size_t>(index)].clone();
  }();
  return value_of(slot);
}

void Record::set(const core::Value& value) {
  refuse_spooled("recorders::Subrecorder::set");
  const Lock lock(*this);
  settle();
  struct CountHeld {  // also if it throws
    Record* record;
    ~CountHeld() { record->count_held(); }
  } count{this};
  const auto longest = [&] {
    std::int64_t most = 0;
    for (const SlotData& slot : slots_) most = std::max(most, slot.list.size());
    return most;
  };
  const std::int64_t before = longest();
  const auto put = [&](SlotData& slot, const core::Value& part) {
    if (slot.sink == nullptr) {
      SampleList list;
      for (const auto& tensor : part.tensors()) list.append_copy(tensor);
      slot.list = std::move(list);
    } else if (!part.is_tensor() || !slot.sink->assign(part.tensor())) {
      slot.fixed = part;
    }
  };
  const auto count_samples = [&] {  // each item of a list is one
    if (options->reduction() != nullptr || longest() == before) return;
    samples_ += longest() - recorded_;
    recorded_ = longest();
  };
  if (!options->all_tensors()) {
    put(slots_[0], value);
    return count_samples();
  }
  TORCH_CHECK_VALUE(value.is_dict() && value.dict().size() == slots_.size(), describe(),
                    ": all tensors are recorded, so the value has to be a dict of ", slots_.size(),
                    " slots; got ", value.describe(), ".");
  for (std::size_t i = 0; i < slots_.size(); ++i) put(slots_[i], value.at(std::to_string(i)));
  count_samples();
}

namespace {

core::Value applied(const core::Value& value, const std::function<at::Tensor(const at::Tensor&)>& function) {
  switch (value.kind()) {
    case core::Value::Kind::none:
      return {};
    case core::Value::Kind::text:
      return value;
    case core::Value::Kind::tensor:
      return value.tensor().defined() ? core::Value(function(value.tensor())) : value;
    case core::Value::Kind::list: {
      core::Value::List list;
      for (const auto& item : value.list()) list.push_back(applied(item, function));
      return list;
    }
    case core::Value::Kind::dict: {
      core::Value::Dict dict;
      for (const auto& [key, item] : value.dict()) dict.emplace_back(key, applied(item, function));
      return dict;
    }
  }
  return {};
}

}  // namespace

void Record::apply(const std::function<at::Tensor(const at::Tensor&, std::int64_t)>& function) {
  refuse_spooled("recorders::Subrecorder::apply");
  const std::int64_t count = samples();
  const core::Value before = value();
  if (before.is_none()) return;
  // Outside of the lock, because `function` is the caller's code.
  set(applied(before, [&](const at::Tensor& tensor) { return function(tensor, count); }));
}

void Record::reset() {
  refuse_spooled("recorders::Subrecorder::reset");
  std::vector<SlotData> former;
  const Lock lock(*this);
  samples_.fetch_sub(forget_samples());
  former = forget_rest();
}

core::Value Record::take() {
  refuse_spooled("recorders::Subrecorder::take");
  std::vector<SlotData> former;
  const Lock lock(*this);
  settle();
  core::Value value = value_of(slots_);
  // Thread sinks are not cleared: samples that threads fold after the merge belong to the next value.
  samples_.fetch_sub(std::exchange(recorded_, 0));
  former = forget_rest();
  return value;
}

/// Called under the lock, when the samples are forgotten: everything else. What it returns is destroyed
/// outside of the lock, because that may run code of the program's.
std::vector<SlotData> Record::forget_rest() {
  std::vector<SlotData> former = std::exchange(slots_, {});
  count_held();
  if (!options->all_tensors()) slots_.push_back(make_slot());
  if (source_ != nullptr) seen_.store(0);
  if (source_ != nullptr && options->reduction() == nullptr) samples_.store(0);  // none were kept
  counts_.put({});
  return former;
}

}  // namespace torchtap::recorders::detail
