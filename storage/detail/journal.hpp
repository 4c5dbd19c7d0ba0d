#pragma once

/// The journal: the list of complete shards of a recording while it is written.
///
/// The journal `journal.jsonl` has a line for each event: eight hexadecimal digits, the CRC-32 of the rest, a
/// space, and a JSON object. Lines are only ever appended; the last one may be torn.

#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/storage/detail/entry_info.hpp>

namespace torchtap::storage::detail {

/// A shard that was begun: its file's name without suffix, and the dtype and shape of its first samples.
struct OpenShard {
  std::int64_t entry = 0;
  std::string name;
  std::int64_t slot = -1;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t stacked = -1;  // samples before the first of another shape; -1 if there is none

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(entry), CEREAL_NVP(name), CEREAL_NVP(slot), CEREAL_NVP(dtype), CEREAL_NVP(shape),
            CEREAL_NVP(stacked));
  }
};

/// By their names.
using OpenShards = std::unordered_map<std::string, OpenShard>;

/// The contents of a journal.
struct Journal {
  std::string library;
  std::string created;
  std::vector<SpooledEntry> entries;  // by index; those without a path were not announced
  OpenShards open;                    // begun and not complete
  std::vector<std::string> damage;    // errors, except for a torn last line
};

/// Whether brackets in `json` nest deeper than `most`. rapidjson parses them recursively, so that a few
/// thousand would overflow the stack.
bool nests_deeper(const std::string& json, int most);

/// Reads a journal. Invalid lines are listed under `damage` and left out. So are lines whose entry index is
/// too large: at least `known`, the number of entries in the manifest, plus the number of lines. Throws
/// `NewerFormat` for a journal of a newer format.
Journal read_journal(const base::InputFile& file, std::size_t known);

/// Make the lines of a journal.
std::string journal_head(const std::string& created);
std::string journal_entry(std::int64_t index, const EntryId& entry);
std::string journal_open(const OpenShard& shard);
std::string journal_shard(std::int64_t entry, const ShardInfo& shard);
std::string journal_not_recorded(std::int64_t entry, const core::NotRecorded& not_recorded);

/// The current time in UTC: "2024-05-31T12:00:00Z".
std::string utc_now();

}  // namespace torchtap::storage::detail
