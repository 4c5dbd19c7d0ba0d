#pragma once

/// Saves a recording entry by entry, each with a value or with shards that are there already.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/storage/detail/entry_info.hpp>
#include <torchtap/storage/entry.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::storage::detail {

/// A shard of a recording that is being saved.
struct ShardToSave {
  ShardInfo info;  ///< without `file` and `bytes`
  std::function<void(base::OutputFile& file)> write;
};

/// An entry whose samples stay in shards.
struct ShardedEntry : EntryId {
  core::NotRecorded not_recorded;
  std::string note;
  std::vector<ShardToSave> shards;  ///< in order
};

/// Takes each entry of a recording that is being saved.
class EntryWriter {
 public:
  virtual ~EntryWriter() = default;
  virtual void write(const Entry& entry) = 0;
  virtual void write(const ShardedEntry& entry) = 0;
};

/// As `storage::save`; `each` writes entry `index`, once.
void save_entries(const std::string& directory, std::size_t count,
                  const std::function<void(std::size_t index, EntryWriter& writer)>& each,
                  const SaveOptions& options);

}  // namespace torchtap::storage::detail
