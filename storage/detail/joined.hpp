#pragma once

/// The entries of several recordings, joined by the module that they are of.

#include <string>
#include <vector>

#include <torchtap/storage/detail/save_entries.hpp>
#include <torchtap/storage/recording.hpp>

namespace torchtap::storage::detail {

/// One module's entries, in the order of the recordings that have it.
struct JoinedEntry {
  std::vector<RecordedEntry> parts;

  /// What is missing in all of them.
  core::NotRecorded not_recorded() const;
  /// What the first of them says beside that.
  std::string note() const;
};

/// Loads the recordings and joins their entries: entries of the first recording in its order, then others.
/// Throws `c10::ValueError` if reductions differ, and unless `all_modules` if modules do.
std::vector<JoinedEntry> joined_by_module(const std::vector<std::string>& paths, bool all_modules);

/// The samples of an entry that is spooled in some of the recordings: copies of the files that hold them.
ShardedEntry with_all_shards(const JoinedEntry& joined);

/// "entry 3 ("layer1.conv")".
std::string named(const RecordedEntry& entry);

}  // namespace torchtap::storage::detail
