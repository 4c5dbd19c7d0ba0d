#include "packed_entries.hpp"

#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <sstream>

#include <torchtap/base/error.hpp>
#include <torchtap/core/archive.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/reductions/restore.hpp>

namespace torchtap::tools::preload {
namespace {

using core::Value;

void save(core::OutputArchive& archive, const Value& value) {
  archive(static_cast<std::int32_t>(value.kind()));
  switch (value.kind()) {
    case Value::Kind::none:
      break;
    case Value::Kind::tensor:
      archive(value.tensor());
      break;
    case Value::Kind::text:
      archive(value.text());
      break;
    case Value::Kind::list:
      archive(static_cast<std::uint64_t>(value.list().size()));
      for (const Value& item : value.list()) save(archive, item);
      break;
    case Value::Kind::dict:
      archive(static_cast<std::uint64_t>(value.dict().size()));
      for (const auto& [key, item] : value.dict()) {
        archive(key);
        save(archive, item);
      }
      break;
  }
}

template <class T>
T loaded(core::InputArchive& archive) {
  T read{};
  archive(read);
  return read;
}

Value load(core::InputArchive& archive) {
  const auto kind = static_cast<Value::Kind>(loaded<std::int32_t>(archive));
  if (kind == Value::Kind::tensor) return loaded<at::Tensor>(archive);
  if (kind == Value::Kind::text) return Value(loaded<std::string>(archive));
  if (kind == Value::Kind::none) return {};
  const auto size = loaded<std::uint64_t>(archive);
  if (kind == Value::Kind::list) {
    Value::List list;
    for (std::uint64_t i = 0; i < size; ++i) list.push_back(load(archive));
    return list;
  }
  Value::Dict dict;
  for (std::uint64_t i = 0; i < size; ++i) {
    auto key = loaded<std::string>(archive);
    dict.emplace_back(std::move(key), load(archive));
  }
  return dict;
}

}  // namespace

namespace {

std::string packed(const storage::Entry* entries, std::size_t size) {
  std::ostringstream text;
  {
    core::OutputArchive archive(text);
    archive(static_cast<std::uint64_t>(size));
    for (std::size_t i = 0; i < size; ++i) {
      const storage::Entry& entry = entries[i];
      archive(entry.path, entry.aliases, entry.type, entry.kind, entry.samples, entry.reduction,
              entry.not_recorded, entry.note, static_cast<std::uint64_t>(entry.state.size()));
      for (const core::SavedSink& sink : entry.state) archive(sink.recipe, sink.bytes);
      save(archive, entry.value);
    }
  }
  return text.str();
}

}  // namespace

std::string pack(const std::vector<storage::Entry>& entries) {
  return packed(entries.data(), entries.size());
}

std::string pack(const storage::Entry& entry) {
  return packed(&entry, 1);
}

std::vector<storage::Entry> unpack(const std::string& bytes) {
  std::istringstream text(bytes);
  core::InputArchive archive(text);
  std::vector<storage::Entry> entries(loaded<std::uint64_t>(archive));
  for (storage::Entry& entry : entries) {
    archive(entry.path, entry.aliases, entry.type, entry.kind, entry.samples, entry.reduction,
            entry.not_recorded, entry.note);
    entry.state.resize(loaded<std::uint64_t>(archive));
    for (core::SavedSink& sink : entry.state) archive(sink.recipe, sink.bytes);
    entry.value = load(archive);
    if (entry.samples == 0) entry.state.clear();
    if (entry.value.is_none() && !entry.state.empty())
      entry.value = core::to_value(reductions::restore(entry.state.front()).results());
  }
  return entries;
}

}  // namespace torchtap::tools::preload
