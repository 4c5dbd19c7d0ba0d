// Reaches into a recorder's list of subrecorders.
#include <memory>
#include <utility>

#include <torchtap/recorders/detail/attached.hpp>
#include <torchtap/recorders/extend/records.hpp>

namespace torchtap::recorders::extend {

std::vector<Record*> Records::of(const Recorder& recorder, const char* call) {
  recorder.check_not_moved(call);
  std::vector<Record*> records;
  for (const auto& entry : recorder.live()) records.push_back(entry.second);
  return records;
}

Record& Records::at(const Recorder& recorder, std::int64_t index) {
  return *recorder[index].record_;
}

void Records::add(Recorder& recorder, std::vector<storage::EntryId> ids) {
  Recorder::AttachedList added;
  for (storage::EntryId& id : ids) {
    auto record = std::make_shared<Record>(recorder.kind_, recorder.options_, std::move(id), /*alone=*/false);
    record->store_in(recorder.store_);
    added.push_back(std::make_unique<Recorder::Attached>(std::move(record)));
  }
  recorder.attached_->reserve(recorder.attached_->size() + added.size());
  for (auto& attached : added) recorder.attached_->push_back(std::move(attached));
}

}  // namespace torchtap::recorders::extend
