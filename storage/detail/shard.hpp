#pragma once

/// One shard of a spooled recording while it is filled.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/storage/detail/entry_info.hpp>
#include <torchtap/storage/detail/pickle.hpp>
#include <torchtap/storage/detail/zip.hpp>

namespace torchtap::storage::detail {

/// Consecutive samples of one dtype and shape, or that are undefined.
struct Run {
  bool defined = true;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> sizes;
  std::int64_t count = 0;

  /// The bytes of all samples together.
  std::uint64_t bytes() const noexcept;
};

/// The open directory of the shards; `call` is for messages.
struct ShardFolder {
  std::string call;
  std::string path;
  base::Descriptor fd;
};

/// A `.pt` file that grows sample by sample: the bytes of samples are written as they arrive, zip headers and
/// directory at the end. A call that throws may be repeated: a failed write has no effect.
class Shard {
 public:
  /// Creates no file yet. `name` is without suffix.
  Shard(std::shared_ptr<const ShardFolder> folder, std::string name, std::int64_t slot);

  /// Appends bytes of samples of `dtype`; the last sample may be incomplete.
  void write(c10::ScalarType dtype, const void* data, std::size_t size);
  /// Declares the bytes written since the last commit to be these complete samples. Undefined samples have no
  /// bytes.
  void commit(const std::vector<Run>& runs);
  /// Discards everything since the last commit.
  void rollback();

  std::uint64_t bytes() const noexcept { return bytes_; }
  std::int64_t samples() const noexcept { return samples_; }
  /// Whether all samples have one shape and dtype.
  bool stacked() const noexcept { return runs_.size() == 1 && runs_[0].defined; }
  /// The first samples; there must be some.
  const Run& first() const noexcept { return runs_.front(); }
  const std::string& name() const noexcept { return name_; }

  /// Writes zip headers, pickle and directory, which make it a `.pt` file.
  void complete();
  /// Waits until the file is on the disk.
  void sync();
  /// Renames the file from `.part` to `.pt`.
  void place();
  /// The description for the manifest, after `complete`.
  ShardInfo info() const;

  bool is_open() const noexcept { return fd_.valid(); }
  /// Closes the file until it is written to again.
  void release() noexcept { fd_ = base::Descriptor(); }

  /// Whether something was written and not committed.
  bool dirty() const noexcept { return dirty_; }

  /// Takes over the file of a process that crashed: all complete samples of this dtype and shape, at most
  /// `kind.count` unless that is negative. `samples()` is their number. Returns how many bytes are left over.
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
  base::Descriptor fd_;
  bool created_ = false;
  bool placed_ = false;
  bool suspect_ = false;  // fsync failed, so the system may have lost pages
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
