// Reads what was recorded.
#include <optional>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/recorders/detail/keep.hpp>
#include <torchtap/recorders/detail/recorded.hpp>
#include <torchtap/recorders/extend/on_devices.hpp>
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

core::Value value_of(const Slots& of, const SlotData& slot) {
  if (slot.fixed.has_value()) return *slot.fixed;
  if (slot.sink == nullptr) {
    return slot.list.size() == 0 ? core::Value() : core::Value(slot.list.tensors(of.describe()));
  }
  return core::to_value(results_of(slot));
}

core::Value value_of(const Slots& of, const std::vector<SlotData>& slots) {
  if (!of.options->all_tensors()) return value_of(of, slots[0]);
  if (slots.empty()) return {};
  core::Value::Dict dict;
  for (std::size_t i = 0; i < slots.size(); ++i) dict.emplace_back(std::to_string(i), value_of(of, slots[i]));
  return dict;
}

}  // namespace

Recorded::Recorded(RecorderKind kind, std::shared_ptr<const RecorderOptions> options, storage::EntryId id)
    : slots_(kind, std::move(options), std::move(id)), prepare_(slots_) {}

Recorded::~Recorded() = default;

void Recorded::choose_taker(std::shared_ptr<Store> store) {
  store_ = std::move(store);
  module_ = store_->add(slots_.id);
  try {
    owned_ = make_taker(slots_, prepare_, store_, module_);
  } catch (...) {
    store_->withdraw(1);
    throw;
  }
  taker_.store(owned_.get(), std::memory_order_release);
}

// The former taker stays, inside of the new one, because other threads may be in it.
void Recorded::take_from_devices(const std::weak_ptr<const void>& owner) {
  if (taker().takes_devices()) return;
  const auto on_devices = store_->on_devices();
  if (on_devices == nullptr) return;
  const Slots::Lock lock(slots_);
  if (owned_->takes_devices()) return;
  const AroundFold around = [&](std::unique_ptr<Fold> folds) {
    return on_devices->around(slots_, prepare_, std::move(folds), owner, forwards_);
  };
  if (auto* const outer = dynamic_cast<TakerAround*>(owned_.get())) return outer->take_from_devices(around);
  owned_ = around(std::unique_ptr<Fold>(&dynamic_cast<Fold&>(*owned_.release())));
  taker_.store(owned_.get(), std::memory_order_release);
}

std::int64_t Recorded::events() const noexcept {
  const std::int64_t seen = taker().seen();
  return seen >= 0 ? seen : samples() + slots_.counts.events();
}

std::string Recorded::note() const {
  const std::string counted = slots_.counts.now().note(), more = words();
  return counted + (counted.empty() || more.empty() ? "" : " ") + more;
}

/// What there is to say beside the counts.
std::string Recorded::words() const {
  std::string always = origin_.always();
  if (!always.empty() || samples() != 0 || !slots_.counts.now().note().empty()) return always;
  return origin_.why_none(events() != 0);
}

storage::Spool::Stream* Recorded::spooled() const {
  storage::Spool::Stream* const stream = taker().spooled();
  if (stream == nullptr) return nullptr;
  const std::lock_guard lock(slots_.mutex);
  stream->note(words());
  stream->not_recorded(slots_.counts.now());
  return stream;
}

void Recorded::refuse_spooled(const char* call) const {
  TORCH_CHECK_VALUE(!in_spool(), call, ": ", describe(), ": samples are spooled to \"",
                    store_->spool().directory(),
                    "\", which this call cannot change or copy; save() there, and read the recording with "
                    "storage::load.");
}

core::Value Recorded::value() const {
  std::optional<RecordData> now;
  if (Slots::Lock lock(slots_); !in_spool()) now = copied();
  if (!now.has_value()) return store_->spool().value(*spooled());
  return value_of(slots_, now->slots);
}

core::Results Recorded::results() const {
  TORCH_CHECK_VALUE(!options().all_tensors(), describe(),
                    ": all tensors are recorded, so there is not one value; call slot(i).");
  TORCH_CHECK_VALUE(options().reduction() != nullptr, describe(),
                    ": every sample is kept, nothing is reduced; call tensors().");
  const RecordData now = data("recorders::Subrecorder::results");
  const SlotData& slot = now.slots[0];
  if (!slot.fixed.has_value()) return results_of(slot);
  core::Results results;
  if (slot.fixed->is_tensor()) return core::Results{{"value", slot.fixed->tensor()}};
  for (const auto& [name, value] : slot.fixed->dict()) results.set(name, value.tensor());
  return results;
}

std::int64_t Recorded::slots() const noexcept {
  if (!options().all_tensors()) return 1;
  if (const std::int64_t updated = taker().slots_in_update(); updated >= 0) return updated;
  std::unique_lock lock(slots_.mutex, std::defer_lock);
  if (!slots_.own_reduction || !OwnCode::runs(slots_, OwnCode::What::reduction)) lock.lock();
  return static_cast<std::int64_t>(slots_.list.size());
}

core::Value Recorded::slot(std::int64_t index) const {
  const std::optional<SlotData> slot = [&]() -> std::optional<SlotData> {
    const Slots::Lock lock(slots_);
    taker().settle();
    const auto count = static_cast<std::int64_t>(slots_.list.size());
    TORCH_CHECK_INDEX(index >= 0 && index < count, describe(), ": slot ", index, " was asked for, but ",
                      count, " were seen.");
    if (in_spool()) return std::nullopt;
    return slots_.list[static_cast<std::size_t>(index)].clone();
  }();
  if (slot.has_value()) return value_of(slots_, *slot);
  const core::Value all = value();
  return options().all_tensors() ? all.at(std::to_string(index)) : all;
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

}  // namespace

core::Value mapped(const core::Value& value, const std::function<at::Tensor(const at::Tensor&)>& function) {
  if (value.is_tensor()) return function(value.tensor());
  if (value.is_list()) {
    core::Value::List list;
    for (const auto& item : value.list()) list.push_back(mapped(item, function));
    return list;
  }
  if (value.is_dict()) {
    core::Value::Dict dict;
    for (const auto& [key, item] : value.dict()) dict.emplace_back(key, mapped(item, function));
    return dict;
  }
  return value;
}

storage::Entry Recorded::entry() const {
  storage::Entry entry;
  static_cast<storage::EntryId&>(entry) = id();
  if (options().reduction() != nullptr) entry.reduction = options().reduction()->describe();
  const RecordData now = data("recorders::Recorder::entries");
  entry.samples = now.samples;
  entry.note = words();
  entry.not_recorded = now.not_recorded;
  if (entry.samples == 0) return entry;
  entry.value = mapped(value_of(slots_, now.slots), [&](const at::Tensor& tensor) {
    if (storage::can_hold(tensor)) return tensor;
    core::NotRecorded one;
    one.none = 1;
    one.why_left_out = why_not_held(tensor);
    entry.not_recorded += one;
    return at::Tensor();
  });
  entry.state = saved(now.slots);
  return entry;
}

RecordData Recorded::data(const char* call) const {
  const Slots::Lock lock(slots_);
  refuse_spooled(call);
  return copied();
}

core::Value Recorded::value_here() const {
  return value_of(slots_, slots_.list);
}

/// Called under the lock. Copies the data, so that computations with it do not make recording threads wait.
RecordData Recorded::copied() const {
  taker().settle();
  return RecordData::copied(slots_);
}

}  // namespace torchtap::recorders::detail
