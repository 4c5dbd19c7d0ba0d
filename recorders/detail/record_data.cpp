// Copies, merges, saves and loads the data of a record.
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/record.hpp>

namespace torchtap::recorders::detail {

RecordData Record::data() const {
  refuse_spooled("merge and snapshot");
  return copied();
}

/// Copies the data, so that computations with it do not make recording threads wait.
RecordData Record::copied() const {
  const Lock lock(*this);
  settle();
  RecordData data;
  for (const auto& slot : slots_) data.slots.push_back(slot.clone());
  data.samples = recorded_;
  data.not_recorded = counts_.now();
  return data;
}

void Record::put(RecordData data) {
  const Lock lock(*this);
  samples_.fetch_add(data.samples - forget_samples());
  recorded_ = data.samples;
  std::swap(slots_, data.slots);  // the former ones are destroyed outside of the lock
  counts_.put(std::move(data.not_recorded));
  count_held();
}

void Record::check_merge(const RecordData& theirs) const {
  RecordData mine = data();
  join(mine.slots, theirs.slots);
}

void Record::merge(const RecordData& theirs) {
  refuse_spooled("merge");
  const Lock lock(*this);
  settle();
  if (options->reduction() == nullptr) {
    join(slots_, theirs.slots);
  } else {  // with copies, because one of several slots may throw
    std::vector<SlotData> joined;
    for (const SlotData& slot : slots_) joined.push_back(slot.clone());
    join(joined, theirs.slots);
    slots_ = std::move(joined);
  }
  recorded_ += theirs.samples;
  samples_.fetch_add(theirs.samples);
  counts_.add(theirs.not_recorded);
  count_held();
}

void Record::join(std::vector<SlotData>& mine, const std::vector<SlotData>& theirs) const {
  while (mine.size() < theirs.size()) mine.push_back(make_slot());
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    SlotData& to = mine[i];
    const SlotData& from = theirs[i];
    TORCH_CHECK_VALUE(!to.fixed.has_value() && !from.fixed.has_value(), describe(),
                      ": a value that was set by hand cannot be merged; merge first, then apply.");
    TORCH_CHECK_VALUE(
        (to.sink == nullptr) == (from.sink == nullptr), describe(),
        ": one recorder keeps every sample and the other reduces them; both have to do the same.");
    if (to.sink != nullptr) {
      try {
        to.sink->merge(*from.sink);
      } catch (c10::Error& error) {
        error.add_context(c10::str("while merging ", describe()));
        throw;
      }
    } else {
      to.list.append(from.list);
    }
  }
}

void Record::save(core::OutputArchive& archive) const {
  const RecordData now = data();
  archive(id.path, now.samples, now.not_recorded, static_cast<std::uint64_t>(now.slots.size()));
  for (const auto& slot : now.slots) {
    TORCH_CHECK_VALUE(
        !slot.fixed.has_value(), "snapshot: ", describe(),
        ": a value that was set by hand is not the state of the reduction any more; save() it, or "
        "reset() first.");
    const bool reduced = slot.sink != nullptr;
    archive(reduced ? slot.sink->describe() : std::string());
    if (reduced) {
      slot.sink->save(archive);
    } else {
      archive(slot.list.tensors(describe()));
    }
  }
}

RecordData Record::load(SnapshotReader& snapshot) const {
  refuse_spooled("restore");
  RecordData data;
  const std::string their_path = snapshot.text();
  core::InputArchive& archive = snapshot.archive();
  std::uint64_t count = 0;
  archive(data.samples);
  if (snapshot.format() >= 2) {
    archive(data.not_recorded);
  } else {
    archive(data.not_recorded.refused, data.not_recorded.without_tensors);
  }
  archive(count);
  TORCH_CHECK_VALUE(their_path == id.path, "restore: the snapshot has \"", their_path,
                    "\" where this recorder has \"", id.path,
                    "\"; attach to the same modules in the same order.");
  TORCH_CHECK_VALUE(options->all_tensors() || count == 1, "restore: ", describe(), ": the snapshot has ",
                    count, " slots, this recorder records one tensor.");
  for (std::uint64_t i = 0; i < count; ++i) {
    SlotData slot = make_slot();
    const std::string reduction = snapshot.text();
    const std::string expected = slot.sink != nullptr ? slot.sink->describe() : "";
    TORCH_CHECK_VALUE(reduction == expected, "restore: ", describe(), ": the snapshot was reduced with ",
                      reduction.empty() ? "nothing" : reduction, ", this recorder reduces with ",
                      expected.empty() ? "nothing" : expected, ".");
    if (slot.sink != nullptr) {
      slot.sink->load(archive);
    } else {
      for (const auto& sample : snapshot.tensors()) slot.list.append_copy(sample);
    }
    data.slots.push_back(std::move(slot));
  }
  return data;
}

}  // namespace torchtap::recorders::detail
