#pragma once

/// One shard of a spooled recording while it is filled.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/storage/detail/disk.hpp>
#include <torchtap/storage/detail/entry_info.hpp>
#include <torchtap/storage/detail/pickle.hpp>
#include <torchtap/storage/detail/zip.hpp>

namespace torchtap::storage::detail {

/// Samples of one dtype and shape, one after the other.
struct Run {
  bool defined = true;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> sizes;
  std::int64_t count = 0;

  /// The bytes of all of them.
  std::uint64_t bytes() const noexcept;
};

/// The directory that shards lie in, for as long as it is written to.
struct ShardFolder {
  std::string call;
  std::string path;
  Descriptor fd;
};

/// A `.pt` file that grows sample by sample: its bytes are written as they come, what makes it a container
/// comes last. Whatever throws may be tried again: a write that failed has not happened.
class Shard {
 public:
  /// Nothing is on disk yet. `name` is without suffix.
  Shard(std::shared_ptr<const ShardFolder> folder, std::string name, std::int64_t slot);

  /// Appends bytes of samples of `dtype`, which need not be whole ones yet.
  void write(c10::ScalarType dtype, const void* data, std::size_t size);
  /// The bytes written since the last commit are these samples, whole ones now. `nothing` in between counts
  /// too.
  void commit(const std::vector<Run>& runs);
  /// Forgets what was written since the last commit.
  void rollback();

  std::uint64_t bytes() const noexcept { return bytes_; }
  std::int64_t samples() const noexcept { return samples_; }
  /// Do all samples have one shape and dtype?
  bool stacked() const noexcept { return runs_.size() == 1 && runs_[0].defined; }
  /// The first samples; there are some.
  const Run& first() const noexcept { return runs_.front(); }
  const std::string& name() const noexcept { return name_; }

  /// Writes what makes the file a container.
  void complete();
  /// Waits for the disk.
  void sync();
  /// Gives the file its name.
  void place();
  /// What the manifest says of it, after `complete`.
  ShardInfo info() const;

  bool is_open() const noexcept { return fd_.valid(); }
  /// Closes the file for now.
  void release() noexcept { fd_ = Descriptor(); }

  /// Is there something that was written and not committed?
  bool dirty() const noexcept { return dirty_; }

  /// Takes over the file of a process that crashed: as many whole samples of this kind as it has, at most
  /// `kind.count` unless that is negative; `samples()` says how many. Returns how many bytes are none of
  /// these.
  std::uint64_t adopt(const Run& kind);

 private:
  struct Part {  // a record: the samples of one dtype
    ZipRecord record;
    std::uint64_t data_at = 0;
    c10::ScalarType dtype = c10::ScalarType::Float;
  };

  std::vector<StoredRun> stored_runs() const;
  int open();
  std::string path() const;
  void begin(c10::ScalarType dtype);
  void reopen();
  void rewrite();
  void write_at(std::uint64_t offset, const void* data, std::size_t size);

  std::shared_ptr<const ShardFolder> folder_;
  std::string name_;
  std::int64_t slot_;
  Descriptor fd_;
  bool created_ = false;
  bool placed_ = false;
  bool suspect_ = false;  // the system may have forgotten pages of it
  std::vector<Part> parts_;
  std::vector<Run> runs_;
  std::int64_t samples_ = 0;
  std::uint64_t bytes_ = 0;      // of samples that were committed
  std::uint64_t file_size_ = 0;  // after `complete`
  // Since the last commit:
  std::size_t parts_before_ = 0;
  std::uint64_t size_before_ = 0;  // of the last part before
  std::uint32_t crc_before_ = 0;
  bool dirty_ = false;
};

}  // namespace torchtap::storage::detail
