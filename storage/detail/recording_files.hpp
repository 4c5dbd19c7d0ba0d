#pragma once

/// The names of the files in a recording's folder, and what may be removed with it.

#include <cstdint>
#include <optional>
#include <string>

#include <torchtap/core/api.hpp>

namespace torchtap::storage::detail {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kJournal = "journal.jsonl";

/// "3-17.pt": shard 17 of entry 3; "3.1-17.pt": that of its slot 1.
struct ShardName {
  std::int64_t entry = 0;
  std::optional<std::int64_t> slot;
  std::int64_t number = 0;

  /// Without suffix.
  std::string stem() const;
};
/// The parts of a name that ends in ".pt" or ".part"; nothing for any other.
std::optional<ShardName> parse_shard_name(const std::string& name);
/// Is it the name of a shard while it is filled ("3-17.part")?
bool is_part(const std::string& name);

/// Is `name` one that a recording gives its files: "manifest.json", "0.pt", "1.pt" …, and of a spooled one
/// "journal.jsonl", "0-0.pt", "0-1.part", "1.0-0.pt" …?
TORCHTAP_API bool is_recording_file(const std::string& name);
/// Does a living process write to the recording in this folder sample by sample?
bool is_spooling(const std::string& path) noexcept;

}  // namespace torchtap::storage::detail
