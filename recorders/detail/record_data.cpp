// Copies, merges, saves and loads what a recorder has of one module.
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/record_data.hpp>

namespace torchtap::recorders::detail {

RecordData RecordData::copied(const Slots& from) {
  RecordData data;
  for (const auto& slot : from.list) data.slots.push_back(slot.clone());
  data.samples = from.recorded;
  data.not_recorded = from.counts.now();
  return data;
}

void join(const Slots& of, std::vector<SlotData>& mine, const std::vector<SlotData>& theirs) {
  while (mine.size() < theirs.size()) mine.push_back(of.fresh_slot());
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    SlotData& to = mine[i];
    const SlotData& from = theirs[i];
    TORCH_CHECK_VALUE(!to.fixed.has_value() && !from.fixed.has_value(), of.describe(),
                      ": a value that was set by hand cannot be merged; merge first, then apply.");
    TORCH_CHECK_VALUE(
        (to.sink == nullptr) == (from.sink == nullptr), of.describe(),
        ": one recorder keeps every sample and the other reduces them; both have to do the same.");
    if (to.sink != nullptr) {
      try {
        to.sink->merge(*from.sink);
      } catch (c10::Error& error) {
        error.add_context(c10::str("while merging ", of.describe()));
        throw;
      }
    } else {
      to.list.append(from.list);
    }
  }
}

void RecordData::save(const Slots& of, core::OutputArchive& archive) const {
  archive(of.id.path, samples, not_recorded, static_cast<std::uint64_t>(slots.size()));
  for (const auto& slot : slots) {
    TORCH_CHECK_VALUE(
        !slot.fixed.has_value(), "snapshot: ", of.describe(),
        ": a value that was set by hand is not the state of the reduction any more; save() it, or "
        "reset() first.");
    const bool reduced = slot.sink != nullptr;
    archive(reduced ? slot.sink->describe() : std::string());
    if (reduced) {
      slot.sink->save(archive);
    } else {
      archive(slot.list.tensors(of.describe()));
    }
  }
}

RecordData RecordData::load(const Slots& of, SnapshotReader& snapshot) {
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
  TORCH_CHECK_VALUE(their_path == of.id.path, "restore: the snapshot has \"", their_path,
                    "\" where this recorder has \"", of.id.path,
                    "\"; attach to the same modules in the same order.");
  TORCH_CHECK_VALUE(of.options->all_tensors() || count == 1, "restore: ", of.describe(),
                    ": the snapshot has ", count, " slots, this recorder records one tensor.");
  for (std::uint64_t i = 0; i < count; ++i) {
    SlotData slot = of.fresh_slot();
    const std::string reduction = snapshot.text();
    const std::string expected = slot.sink != nullptr ? slot.sink->describe() : "";
    TORCH_CHECK_VALUE(reduction == expected, "restore: ", of.describe(), ": the snapshot was reduced with ",
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
