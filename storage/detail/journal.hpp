#pragma once

/// What a recording says about its shards while it is written.
///
/// The journal `journal.jsonl` has a line for each event: eight hexadecimal digits, the CRC-32 of the rest, a
/// blank, and a JSON object. Lines are only ever appended; the last one may be torn.

#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/storage/detail/disk.hpp>
#include <torchtap/storage/detail/entry_info.hpp>

namespace torchtap::storage::detail {

/// A shard that was begun: its file's name without suffix, and what its first samples are.
struct OpenShard {
  std::int64_t entry = 0;
  std::string name;
  std::int64_t slot = -1;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t stacked = -1;  // how many samples came before one of another shape; -1 where none did

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(entry), CEREAL_NVP(name), CEREAL_NVP(slot), CEREAL_NVP(dtype), CEREAL_NVP(shape),
            CEREAL_NVP(stacked));
  }
};

/// Everything that a journal says.
struct Journal {
  std::string library;
  std::string created;
  std::vector<SpooledEntry> entries;  // by index; those without a path were not announced
  std::vector<OpenShard> open;        // begun and not completed
  std::vector<std::string> damage;    // what is wrong with it, but for a torn last line
};

/// rapidjson reads nested brackets by recursion; a few thousand of them would end the stack.
bool nests_deeper(const std::string& json, int most);

/// Reads a journal as far as it goes. Lines that contradict themselves are listed under `damage` and left
/// out; so are entries beyond `known`, those that the manifest has, and as many more as the journal has
/// lines. Throws `NewerFormat` for a journal of a newer schema.
Journal read_journal(const InputFile& file, std::size_t known);

/// The lines of a journal.
std::string journal_head(const std::string& created);
std::string journal_entry(std::int64_t index, const EntryId& entry);
std::string journal_open(const OpenShard& shard);
std::string journal_shard(std::int64_t entry, const ShardInfo& shard);

/// "2024-05-31T12:00:00Z".
std::string utc_now();

}  // namespace torchtap::storage::detail
