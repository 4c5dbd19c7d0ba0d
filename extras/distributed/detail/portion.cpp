// Takes the data of recorders out and puts other data in its place.
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/distributed/detail/portion.hpp>
#include <torchtap/recorders/extend/records.hpp>
#include <torchtap/recorders/extend/takes.hpp>

namespace torchtap::distributed::detail {

using recorders::extend::Record;
using recorders::extend::RecordData;
using recorders::extend::Records;
using recorders::extend::SlotData;

std::vector<Portion> portions_of(const recorders::Recorder& recorder) {
  std::vector<Portion> portions;
  for (const Record* const record : Records::of(recorder, "merge_ranks")) {
    TORCH_CHECK_VALUE(
        record->spooled() == nullptr, record->describe(), ": samples are spooled to \"",
        recorder.options().spool_directory(),
        "\", and ranks merge in memory; save() each rank's recording, and join them with `torchtap merge`.");
    RecordData data = record->data("merge_ranks");
    Portion portion;
    portion.id = record->id();
    portion.samples = data.samples;
    portion.not_recorded = std::move(data.not_recorded);
    for (SlotData& slot : data.slots) {
      TORCH_CHECK_VALUE(!slot.fixed.has_value(), record->describe(),
                        ": a value that was set by hand cannot be merged; merge first, then apply.");
      portion.slots.push_back({std::move(slot.sink), slot.list.tensors(record->describe())});
    }
    portions.push_back(std::move(portion));
  }
  return portions;
}

std::string changed_since(const recorders::Recorder& recorder, const std::vector<Portion>& taken) {
  const auto records = Records::of(recorder, "merge_ranks");
  if (records.size() != taken.size()) return "the list of subrecorders";
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (records[i]->events() != taken[i].samples + taken[i].not_recorded.events())
      return records[i]->describe();
  }
  return "";
}

void put(recorders::Recorder& recorder, std::vector<Portion> merged) {
  const auto data_of = [](Portion& portion) {
    RecordData data;
    data.samples = portion.samples;
    data.not_recorded = std::move(portion.not_recorded);
    for (auto& slot : portion.slots) {
      SlotData into;
      into.sink = std::move(slot.sink);
      for (const at::Tensor& sample : slot.samples) into.list.append_copy(sample);
      data.slots.push_back(std::move(into));
    }
    return data;
  };
  // Allocations come first, so that either all of the data is put or nothing.
  std::vector<RecordData> data;
  std::vector<storage::EntryId> others;
  const std::size_t known = Records::of(recorder, "merge_ranks").size();
  for (std::size_t i = 0; i < merged.size(); ++i) {
    data.push_back(data_of(merged[i]));
    if (i >= known) others.push_back(std::move(merged[i].id));
  }
  Records::add(recorder, std::move(others));
  const auto records = Records::of(recorder, "merge_ranks");
  for (std::size_t i = 0; i < data.size(); ++i) records[i]->put(std::move(data[i]));
}

}  // namespace torchtap::distributed::detail
