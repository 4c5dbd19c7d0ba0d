// Joins the entries of recordings.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/folder.hpp>
#include <torchtap/storage/detail/joined.hpp>
#include <torchtap/storage/detail/manifest_check.hpp>
#include <torchtap/storage/detail/pt.hpp>

namespace torchtap::storage::detail {

/// Private parts of an entry that joining needs.
struct EntryAccess {
  static const Description& description(const RecordedEntry& entry) { return *entry.description_; }
  static base::InputFile open(const RecordedEntry& entry, const std::string& name) {
    return entry.open("merge", name);
  }
};

namespace {

/// Path, and which of several of that path: a recorder of two models has the same path twice.
using Key = std::pair<std::string, int>;

std::vector<Key> keys_of(const Recording& recording) {
  std::map<std::string, int> seen;
  std::vector<Key> keys;
  for (const auto& entry : recording) {
    // What is beside rows may come in any order.
    const std::string name = entry.path() + (is_beside(entry.kind()) ? '\0' + entry.kind() : "");
    keys.emplace_back(name, seen[name]++);
  }
  return keys;
}

void check_alike(const RecordedEntry& mine, const std::string& first, const RecordedEntry& theirs,
                 const std::string& other) {
  const auto check = [&](const char* what, const std::string& a, const std::string& b) {
    TORCH_CHECK_VALUE(a == b, "merge: cannot merge \"", other, "\" into \"", first, "\": ", named(mine),
                      " has the ", what, " \"", a, "\" in the first and \"", b, "\" in the second.");
  };
  check("kind", mine.kind(), theirs.kind());
  check("reduction", mine.reduction(), theirs.reduction());
}

/// The modules that one recording has and the other lacks, for messages.
std::string lacking(const Recording& from, const std::vector<Key>& keys,
                    const std::map<Key, std::size_t>& other) {
  std::string text;
  for (std::size_t i = 0, found = 0; i < keys.size() && found < 5; ++i) {
    if (other.count(keys[i]) != 0) continue;
    text += (text.empty() ? "" : ", ") + named(from.at(static_cast<std::int64_t>(i)));
    ++found;
  }
  return text.empty() ? "none" : text;
}

void copy(const base::InputFile& from, base::OutputFile& to) {
  constexpr std::uint64_t kPiece = 1 << 20;
  std::vector<char> piece(static_cast<std::size_t>(std::min(from.size(), kPiece)));
  for (std::uint64_t at = 0; at < from.size(); at += kPiece) {
    const auto size = static_cast<std::size_t>(std::min(from.size() - at, kPiece));
    from.read_at(at, piece.data(), size);
    to.write(piece.data(), size);
  }
}

/// The samples of an entry that is in one file, as a shard of each slot.
void add_unspooled(const RecordedEntry& entry, std::vector<ShardToSave>& shards) {
  const std::string& name = EntryAccess::description(entry).file;
  if (name.empty()) return;
  const auto file = std::make_shared<base::InputFile>(EntryAccess::open(entry, name));
  const auto add = [&](std::int64_t slot, const core::Value& value) {
    ShardToSave shard{describe_shard(*file, value), nullptr};
    shard.info.slot = slot;
    // Read again when it is written, so that only one entry of one recording is in memory.
    shard.write = [entry, slot](base::OutputFile& to) {
      const core::Value all = entry.value();
      write_value(to, slot < 0 ? all : all.at(std::to_string(slot)));
    };
    shards.push_back(std::move(shard));
  };
  const core::Value value = entry.value();
  if (!value.is_dict()) return add(-1, value);
  for (const auto& [key, samples] : value.dict()) add(std::stoll(key), samples);
}

}  // namespace

std::string named(const RecordedEntry& entry) {
  return named(static_cast<std::size_t>(entry.index()), entry.path());
}

std::vector<JoinedEntry> joined_by_module(const std::vector<std::string>& paths, bool all_modules) {
  std::vector<JoinedEntry> joined;
  std::map<Key, std::size_t> places;
  std::vector<std::string> first_of;  // the recording that a module was first found in
  std::optional<Recording> first;
  for (const auto& path : paths) {
    const Recording recording = load(path);
    const bool dump = std::any_of(recording.begin(), recording.end(),
                                  [](const auto& entry) { return is_calls(entry.kind()); });
    TORCH_CHECK_VALUE(!dump || recording.complete(), "merge: \"", path,
                      "\" has rows and is not finished, so rows and their calls may end at different places; "
                      "run torchtap recover, or storage::recover, first.");
    const std::vector<Key> keys = keys_of(recording);
    if (!first.has_value()) first = recording;
    const std::size_t known = joined.size();
    std::size_t met = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto& entry = recording.at(static_cast<std::int64_t>(i));
      const auto [place, added] = places.try_emplace(keys[i], joined.size());
      if (added) {
        joined.emplace_back();
        first_of.push_back(path);
      } else {
        check_alike(joined[place->second].parts.front(), first_of[place->second], entry, path);
        ++met;
      }
      joined[place->second].parts.push_back(entry);
    }
    if (all_modules || &path == &paths.front() || (met == known && joined.size() == known)) continue;
    std::map<Key, std::size_t> mine, theirs;
    const std::vector<Key> keys_of_first = keys_of(*first);
    for (const auto& key : keys_of_first) mine.emplace(key, 0);
    for (const auto& key : keys) theirs.emplace(key, 0);
    TORCH_CHECK_VALUE(
        false, "merge: cannot merge \"", path, "\" into \"", paths.front(),
        "\": they recorded different modules. Only the first has ", lacking(*first, keys_of_first, theirs),
        "; only the second has ", lacking(recording, keys, mine),
        ". To merge the modules of all parts, ask for all_modules (torchtap merge --all-modules).");
  }
  return joined;
}

core::NotRecorded JoinedEntry::not_recorded() const {
  core::NotRecorded all;
  for (const auto& part : parts) all += part.not_recorded();
  return all;
}

std::string JoinedEntry::note() const {
  for (const auto& part : parts) {
    std::string words = words_beside(part.not_recorded(), part.note());
    if (!words.empty()) return words;
  }
  return {};
}

ShardedEntry with_all_shards(const JoinedEntry& joined) {
  ShardedEntry whole;
  static_cast<EntryId&>(whole) = joined.parts.front().id();
  whole.not_recorded = joined.not_recorded();
  whole.note = joined.note();
  for (const auto& entry : joined.parts) {
    const Description& description = EntryAccess::description(entry);
    for (const ShardInfo& info : description.shards) {
      // Opened when it is copied: a recording may have more shards than a process may have files.
      whole.shards.push_back({info, [entry, name = info.file](base::OutputFile& to) {
                                copy(EntryAccess::open(entry, name), to);
                              }});
    }
    if (description.shards.empty()) add_unspooled(entry, whole.shards);
  }
  return whole;
}

}  // namespace torchtap::storage::detail
