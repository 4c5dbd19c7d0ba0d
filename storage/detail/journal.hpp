#pragma once

/// What a recording says about shards: in its manifest, and before there is one in its journal.
///
/// The journal `journal.jsonl` has a line for each event: eight hexadecimal digits, the CRC-32 of the rest, a
/// blank, and a JSON object. Lines are only ever appended; the last one may be torn.

#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <string>
#include <torchtap/storage/detail/disk.hpp>
#include <torchtap/storage/recording.hpp>
#include <vector>

namespace torchtap::storage::detail {

constexpr const char* kJournal = "journal.jsonl";

/// A file with samples of one entry.
struct ShardInfo {
  std::string file;
  std::int64_t slot = -1;  // -1 where one tensor a sample is recorded
  std::int64_t samples = 0;
  std::int64_t bytes = 0;
  std::string holds;  // "tensor" (stacked) or "list"
  std::string dtype;  // of a sample: as in the manifest
  std::vector<std::int64_t> shape;
  bool ragged = false;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(file), CEREAL_NVP(slot), CEREAL_NVP(samples), CEREAL_NVP(bytes), CEREAL_NVP(holds),
            CEREAL_NVP(dtype), CEREAL_NVP(shape), CEREAL_NVP(ragged));
  }
};

/// An entry and its shards, in order.
struct SpooledEntry {
  std::string path;
  std::vector<std::string> aliases;
  std::string type;
  std::string kind;
  std::vector<ShardInfo> shards;
  std::int64_t dropped = 0;

  std::int64_t samples() const noexcept;
};

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

/// The sum, or the largest number there is: what a file claims may be anything.
std::int64_t saturating_add(std::int64_t a, std::int64_t b) noexcept;
/// A name for a shard, without suffix: "3-17", "3.1-17".
std::string shard_name(std::int64_t entry, std::int64_t slot, std::int64_t number);
/// The parts of a name with suffix ".pt" or ".part". False if it is none.
bool parse_shard_name(const std::string& name, std::int64_t& entry, std::int64_t& slot, std::int64_t& number);
/// "3-17.part" and "3-17.pt": the names of a shard while it is filled, and for good.
bool is_part(const std::string& name);

/// rapidjson reads nested brackets by recursion; a few thousand of them would end the stack.
bool nests_deeper(const std::string& json, int most);

/// Reads a journal as far as it goes. Lines that contradict themselves are listed under `damage` and left
/// out; so are entries beyond `known`, those that the manifest has, and as many more as the journal has
/// lines.
Journal read_journal(const InputFile& file, std::size_t known);

/// The lines of a journal.
std::string journal_head(const std::string& created);
std::string journal_entry(std::int64_t index, const SpooledEntry& entry);
std::string journal_open(const OpenShard& shard);
std::string journal_shard(std::int64_t entry, const ShardInfo& shard);

/// What the recording in an open directory says of itself: manifest and journal together.
struct Contents {
  std::vector<SpooledEntry> entries;
  std::vector<OpenShard> open;
  std::vector<std::string> damage;
  std::string created;
  bool has_manifest = false;
  bool has_journal = false;
};
/// Throws `c10::ValueError` if it cannot be gone on with sample by sample, because an entry was reduced. With
/// `damage`, what is wrong with the manifest or journal goes there instead of being thrown.
Contents read_contents(const std::string& call, const std::string& path, int directory, bool lenient);

/// Puts a manifest in place.
void write_manifest(const std::string& call, const std::string& path, int directory,
                    const std::string& created, const std::vector<SpooledEntry>& entries, bool sync);

/// "2024-05-31T12:00:00Z".
std::string utc_now();

}  // namespace torchtap::storage::detail
