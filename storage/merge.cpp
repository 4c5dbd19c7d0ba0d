// Merges recordings entry by entry.
#include <utility>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/storage/detail/entry_info.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/save.hpp>

namespace torchtap::storage {
namespace {

struct Part {
  std::string path;
  Recording recording;
};

std::string named(const RecordedEntry& entry) {
  return detail::named(static_cast<std::size_t>(entry.index()), entry.path());
}

/// Whether the value is a dict by slot, as `Options::all_tensors` makes it.
bool by_slots(const RecordedEntry& entry) {
  return !entry.keys().empty() && entry.keys().front() == "0";
}

void check_same(const Part& first, const Part& other) {
  const auto check = [&](const RecordedEntry& entry, const char* what, const std::string& mine,
                         const std::string& theirs) {
    TORCH_CHECK_VALUE(mine == theirs, "merge: cannot merge \"", other.path, "\" into \"", first.path,
                      "\": ", named(entry), " has the ", what, " \"", mine, "\" in the first and \"", theirs,
                      "\" in the second; both must have recorded the same modules in the same order.");
  };
  TORCH_CHECK_VALUE(first.recording.size() == other.recording.size(), "merge: cannot merge \"", other.path,
                    "\" into \"", first.path, "\": the first has ", first.recording.size(),
                    " modules, the second ", other.recording.size(), ".");
  for (std::size_t i = 0; i < first.recording.size(); ++i) {
    const auto& mine = first.recording.at(static_cast<std::int64_t>(i));
    const auto& theirs = other.recording.at(static_cast<std::int64_t>(i));
    check(mine, "path", mine.path(), theirs.path());
    check(mine, "kind", mine.kind(), theirs.kind());
    check(mine, "reduction", mine.reduction(), theirs.reduction());
  }
}

void append(core::Value::List& list, const core::Value& value) {
  list.insert(list.end(), value.list().begin(), value.list().end());
}

/// Kept samples, one list after the other; by slot if there are several.
core::Value appended(const std::vector<RecordedEntry>& parts) {
  core::Value::List list;
  std::vector<std::pair<std::string, core::Value::List>> slots;
  for (const auto& part : parts) {
    const core::Value value = part.value();
    if (value.is_list()) {
      append(list, value);
      continue;
    }
    for (std::size_t i = 0; i < value.dict().size(); ++i) {
      const auto& [key, samples] = value.dict()[i];
      if (i == slots.size()) slots.emplace_back(key, core::Value::List());
      append(slots[i].second, samples);
    }
  }
  if (slots.empty()) return list;
  core::Value::Dict dict;
  for (auto& [key, samples] : slots) dict.emplace_back(key, std::move(samples));
  return dict;
}

/// Merges the reductions of all parts by their states.
void reduce(const std::vector<RecordedEntry>& parts, const Restore& restore, Entry& merged) {
  std::vector<std::unique_ptr<core::Sink>> slots;
  for (const auto& part : parts) {
    const auto states = part.state();
    TORCH_CHECK_VALUE(
        !states.empty(), "merge: \"", part.file(), "\" holds results of ", part.reduction(),
        " without a saved state, so they cannot be merged. Callables, map and types without a recipe "
        "save no state.");
    for (std::size_t i = 0; i < states.size(); ++i) {
      auto sink = restore(states[i]);
      if (i == slots.size()) {
        slots.push_back(std::move(sink));
      } else {
        slots[i]->merge(*sink);
      }
    }
  }
  core::Value::Dict values;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    values.emplace_back(std::to_string(i), core::to_value(slots[i]->results()));
    auto state = core::save(*slots[i]);
    TORCH_CHECK_VALUE(state.has_value(), "merge: the restored ", slots[i]->describe(),
                      " has no recipe, so its state cannot be saved again.");
    merged.state.push_back(std::move(*state));
  }
  merged.value = by_slots(parts.front()) ? core::Value(std::move(values)) : values.front().second;
}

Entry merge_entry(const std::vector<Part>& all, std::size_t index, const Restore& restore) {
  Entry merged;
  std::vector<RecordedEntry> parts;  // those that recorded something
  for (const auto& part : all) {
    const auto& entry = part.recording.at(static_cast<std::int64_t>(index));
    merged.samples += entry.samples();
    if (entry.samples() != 0) parts.push_back(entry);
  }
  const auto& first = all.front().recording.at(static_cast<std::int64_t>(index));
  static_cast<EntryId&>(merged) = first.id();
  merged.reduction = first.reduction();
  try {
    if (parts.size() == 1) {
      merged.value = parts.front().value();
      merged.state = parts.front().state();
    } else if (!parts.empty() && merged.reduction.empty()) {
      merged.value = appended(parts);
    } else if (!parts.empty()) {
      reduce(parts, restore, merged);
    }
  } catch (c10::Error& error) {
    error.add_context("while merging " + named(first));
    throw;
  }
  return merged;
}

}  // namespace

void merge(const std::vector<std::string>& parts, const std::string& directory, const Restore& restore,
           const MergeOptions& options) {
  TORCH_CHECK_VALUE(!parts.empty(), "merge: no recordings were given, so there is nothing to merge.");
  TORCH_CHECK_VALUE(restore != nullptr,
                    "merge: the function that restores reductions is empty; pass reductions::restore.");
  std::vector<Part> all;
  all.reserve(parts.size());
  for (const auto& path : parts) all.push_back({path, load(path)});
  for (const auto& part : all) check_same(all.front(), part);
  const std::size_t count = all.front().recording.size();
  save(
      directory, count,
      [&](std::size_t i) {
        if (options.on_entry()) options.on_entry()(count);
        return merge_entry(all, i, restore);
      },
      options.save());
}

}  // namespace torchtap::storage
