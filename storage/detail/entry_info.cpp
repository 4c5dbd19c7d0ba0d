// Describes entries for manifests and journals.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <torchtap/storage/detail/entry_info.hpp>

namespace torchtap::storage::detail {
namespace {

/// The sum, or the nearest int64 if it overflows: a file may claim any number.
std::int64_t saturating_add(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
}

/// The note in the manifest: what is missing, and what there is to say beside that.
template <class Entry>
std::string note_of(const Entry& entry) {
  const std::string missing = entry.not_recorded.note();
  return missing + (missing.empty() || entry.note.empty() ? "" : " ") + entry.note;
}

}  // namespace

std::int64_t SpooledEntry::samples() const noexcept {
  std::int64_t most = 0, all = 0;
  // Where all tensors of a module are recorded, each slot has a part of every sample.
  std::vector<std::pair<std::int64_t, std::int64_t>> slots;
  for (const auto& shard : shards) {
    if (shard.slot < 0) {
      all = saturating_add(all, shard.samples);
      continue;
    }
    auto slot = slots.begin();
    while (slot != slots.end() && slot->first != shard.slot) ++slot;
    if (slot == slots.end()) slot = slots.insert(slots.end(), {shard.slot, 0});
    slot->second = saturating_add(slot->second, shard.samples);
    most = std::max(most, slot->second);
  }
  return std::max(all, most);
}

SpooledEntry Description::spooled() const {
  return {*this, shards, not_recorded, words_beside(not_recorded, note)};
}

std::string words_beside(const core::NotRecorded& not_recorded, const std::string& note) {
  const std::string missing = not_recorded.note();
  if (missing.empty() || note.compare(0, missing.size(), missing) != 0) return note;
  return note.substr(std::min(missing.size() + 1, note.size()));
}

const char* holds(const core::Value& value) {
  switch (value.kind()) {
    case core::Value::Kind::none:
      return "none";
    case core::Value::Kind::tensor:
      return value.tensor().defined() ? "tensor" : "none";
    case core::Value::Kind::list:
      return "list";
    case core::Value::Kind::dict:
      return "dict";
    case core::Value::Kind::text:
      return "text";
  }
  return "none";
}

bool is_empty(const core::Value& value) {
  return std::string(holds(value)) == "none" || (value.is_list() && value.list().empty()) ||
         (value.is_dict() && value.dict().empty());
}

void each_tensor(const core::Value& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.is_tensor() && value.tensor().defined()) visit(value.tensor());
  if (value.is_list()) {
    for (const auto& item : value.list()) each_tensor(item, visit);
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict()) each_tensor(item, visit);
  }
}

std::string named(std::size_t index, const std::string& path) {
  return "entry " + std::to_string(index) + " (\"" + path + "\")";
}

Description describe(const Entry& entry, std::size_t index) {
  Description part;
  static_cast<EntryId&>(part) = entry;
  part.index = static_cast<std::int64_t>(index);
  part.samples = entry.samples;
  part.reduction = entry.reduction;
  part.not_recorded = entry.not_recorded;
  part.note = note_of(entry);
  part.holds = holds(entry.value);
  if (part.holds == "tensor" || part.holds == "text") part.number = 1;
  if (part.holds == "list") part.number = static_cast<std::int64_t>(entry.value.list().size());
  if (part.holds == "dict") {
    part.number = static_cast<std::int64_t>(entry.value.dict().size());
    for (const auto& [key, item] : entry.value.dict()) part.keys.push_back(key);
  }
  each_tensor(entry.value,
              [&](const at::Tensor& tensor) { part.form.add(tensor.scalar_type(), tensor.sizes()); });
  return part;
}

Description describe(const SpooledEntry& entry, std::size_t index) {
  Description part;
  static_cast<EntryId&>(part) = entry;
  part.index = static_cast<std::int64_t>(index);
  part.samples = entry.samples();
  part.shards = entry.shards;
  part.not_recorded = entry.not_recorded;
  part.holds = part.samples == 0 ? "none" : "list";
  part.note = note_of(entry);
  for (const auto& shard : entry.shards) {
    part.bytes = saturating_add(part.bytes, shard.bytes);
    if (shard.slot < 0) {
      part.number = saturating_add(part.number, shard.samples);
    } else {
      part.holds = "dict";
      const std::string key = std::to_string(shard.slot);
      if (std::find(part.keys.begin(), part.keys.end(), key) == part.keys.end()) part.keys.push_back(key);
    }
    part.form.add(shard.form);
  }
  if (part.holds == "dict") {
    std::sort(part.keys.begin(), part.keys.end(),
              [](const auto& a, const auto& b) { return std::stoll(a) < std::stoll(b); });
    part.number = static_cast<std::int64_t>(part.keys.size());
  }
  return part;
}

}  // namespace torchtap::storage::detail
