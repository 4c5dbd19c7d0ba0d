#pragma once

/// The names of the files in a recording's folder.

#include <cstdint>
#include <optional>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/base/disk.hpp>

namespace torchtap::storage::detail {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kJournal = "journal.jsonl";

/// "3-17.pt": shard 17 of entry 3; "3.1-17.pt": shard 17 of its slot 1.
struct ShardName {
  std::int64_t entry = 0;
  std::optional<std::int64_t> slot;
  std::int64_t number = 0;

  /// The name without suffix.
  std::string stem() const;
};
/// The parts of a name that ends in ".pt" or ".part"; nothing for any other.
std::optional<ShardName> parse_shard_name(const std::string& name);
/// Whether `name`, a shard name, names an unfinished shard ("3-17.part").
bool is_part(const std::string& name);

/// Whether `name` names a file of a recording, which may be removed with it: "manifest.json",
/// "manifest.json.part", "0.pt", "1.pt" …, and of a spooled one "journal.jsonl", "0-0.pt", "0-1.part",
/// "1.0-0.lost" …
TORCHTAP_API bool is_recording_file(const std::string& name);
/// Locks the recording in a folder for a spool: its journal, locked by a spool that writes there, and its
/// manifest, locked by a spool that will replace it. Nothing if another process has locked it.
struct RecordingLock {
  base::Descriptor journal, manifest;
};
std::optional<RecordingLock> lock_recording(const std::string& path) noexcept;
/// Whether a running process spools to this folder, or to a folder that will replace it.
bool is_spooling(const std::string& path) noexcept;

}  // namespace torchtap::storage::detail
