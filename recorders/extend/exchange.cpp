// Takes the data of recorders out and puts other data in its place.
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/attached.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/extend/exchange.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace torchtap::recorders::extend {

using detail::RecordData;
using detail::SlotData;

std::vector<Portion> Exchange::take(const Recorder& recorder) {
  recorder.check_not_moved("merge_ranks");
  std::vector<Portion> portions;
  for (const auto& entry : recorder.live()) portions.push_back(take(recorder, entry.first));
  return portions;
}

Portion Exchange::take(const Recorder& recorder, std::int64_t index) {
  const Record& record = *recorder[index].record_;
  TORCH_CHECK_VALUE(
      !recorder.store_->spooling(), record.describe(), ": samples are spooled to \"",
      recorder.options().spool_directory(),
      "\", and ranks merge in memory; save() each rank's recording, and join them with `torchtap merge`.");
  RecordData data = record.data("merge_ranks");
  Portion portion;
  portion.id = record.id();
  portion.samples = data.samples;
  portion.not_recorded = std::move(data.not_recorded);
  for (SlotData& slot : data.slots) {
    TORCH_CHECK_VALUE(!slot.fixed.has_value(), record.describe(),
                      ": a value that was set by hand cannot be merged; merge first, then apply.");
    portion.slots.push_back({std::move(slot.sink), slot.list.tensors(record.describe())});
  }
  return portion;
}

std::unique_ptr<core::Sink> Exchange::blank(const Recorder& recorder) {
  const auto& reduction = recorder.options().reduction();
  return reduction == nullptr ? nullptr : reduction->clone();
}

std::string Exchange::changed_since(const Recorder& recorder, const std::vector<Portion>& taken) {
  const auto records = recorder.live();
  if (records.size() != taken.size()) return "the list of subrecorders";
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const Record& record = *records[i].second;
    if (record.events() != taken[i].samples + taken[i].not_recorded.events()) return record.describe();
  }
  return "";
}

void Exchange::put(Recorder& recorder, std::vector<Portion> merged) {
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
  const auto records = recorder.live();
  // Allocations come first, so that either all of the data is put or nothing.
  std::vector<RecordData> data;
  data.reserve(merged.size());
  Recorder::AttachedList added;
  for (std::size_t i = 0; i < merged.size(); ++i) {
    data.push_back(data_of(merged[i]));
    if (i < records.size()) continue;
    auto record =
        std::make_shared<Record>(recorder.kind_, recorder.options_, std::move(merged[i].id), /*alone=*/false);
    record->store_in(recorder.store_);
    added.push_back(std::make_unique<Recorder::Attached>(std::move(record)));
  }
  recorder.attached_->reserve(recorder.attached_->size() + added.size());
  for (std::size_t i = 0; i < merged.size(); ++i) {
    Record& record =
        i < records.size() ? *records[i].second : *added[i - records.size()]->subrecorder.record_;
    record.put(std::move(data[i]));
  }
  for (auto& attached : added) recorder.attached_->push_back(std::move(attached));
}

}  // namespace torchtap::recorders::extend
