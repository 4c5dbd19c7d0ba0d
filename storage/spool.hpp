#pragma once

/// Recordings larger than memory: samples that go to disk as they come.
///
/// A spooled recording is a directory with a manifest, as docs/format.md describes it, in which each entry
/// has shards instead of one file: `3-0.pt`, `3-1.pt` … for entry 3 (`3.1-0.pt` … for its slot 1, where all
/// tensors of a module are recorded). Each shard is complete in itself. In Python:
///
///     manifest = json.load(open("analysis/manifest.json"))
///     for entry in manifest["entries"]:
///         for shard in entry["shards"]:
///             for sample in torch.load("analysis/" + shard["file"], weights_only=True):
///                 ...
///
/// A shard whose samples have one shape and dtype holds them stacked, as a tensor `[samples, ...]`; any other
/// holds a list. Iterating yields the samples either way.
///
/// While it is written, and after a crash, `journal.jsonl` lists the shards that are complete; `load` reads
/// that, too. Shards that are being filled are called `….part`.

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/core/api.hpp>
#include <torchtap/storage/entry.hpp>

namespace torchtap::storage {

/// What happens to a sample that comes while the queue in front of the disk is full.
enum class WhenFull {
  /// Whoever brings it waits until the disk has caught up.
  wait,
  /// It is left out, and counted.
  drop,
  /// `c10::Error`; it is not recorded, all before it are.
  raise,
};

/// How samples are spooled.
class TORCHTAP_API SpoolOptions {
  /// Create missing directories. Otherwise a missing one is an error.
  TORCH_ARG(bool, mkdir) = false;
  /// Replace the recording that is there, at once. Otherwise that is an error.
  TORCH_ARG(bool, overwrite) = false;
  /// Go on with the recording that is there, spooled or not, finished or cut off by a crash (then it is
  /// repaired first, as `recover` does): modules of the same path and kind get further samples behind those
  /// they have, others are added.
  TORCH_ARG(bool, append) = false;
  /// How many bytes of samples a shard takes before the next one is begun; a sample is never divided.
  TORCH_ARG(std::int64_t, shard_bytes) = std::int64_t{64} << 20;
  /// How many bytes may wait in memory for the disk, apart from up to 64 KiB a module that are being
  /// collected; a sample that is larger waits alone.
  TORCH_ARG(std::int64_t, queue_bytes) = std::int64_t{256} << 20;
  /// What happens to a sample that finds the queue full.
  TORCH_ARG(WhenFull, when_full) = WhenFull::wait;
  /// Wait until the disk has a shard before it counts as complete, so that it survives a power failure.
  /// Without, it survives a killed process.
  TORCH_ARG(bool, sync) = true;
};

/// Writes a recording sample by sample, by a thread of its own behind a bounded queue.
///
/// What fails in the background (disk full, an I/O error) is thrown, as `c10::Error`, by the next `admit` and
/// by `flush`, `finish` and `close`, until one of the latter three succeeds: they try again, so once there is
/// room nothing is lost. Samples not yet on disk wait in memory until then, and nothing is added to them.
///
/// Thread-safe. In a child process (fork) every call is an error and the destructor does nothing.
class TORCHTAP_API Spool {
 public:
  /// Takes `directory`, and keeps others from writing there until `close`. Throws `c10::ValueError` where it
  /// may not be written to (see `SpoolOptions`), or where another spool writes already; `c10::Error` if the
  /// system fails.
  explicit Spool(const std::string& directory, const SpoolOptions& options = {});
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  /// Closes. What cannot be written then is lost, but for the shards that are complete; call `close` to know.
  ~Spool();

  /// The samples of one entry. Valid as long as the spool.
  class Stream;
  /// Adds an entry. With `SpoolOptions::append`, an entry of the same path and kind that no stream was opened
  /// for yet is gone on with.
  Stream& add(const EntryId& id);
  /// Forgets the last `count` entries, unless they have samples.
  void withdraw(std::int64_t count) noexcept;

  /// To be asked before samples of `bytes` in all are appended: waits, throws, or returns false and counts
  /// them as dropped, as `SpoolOptions::when_full` has it.
  bool admit(Stream& stream, std::int64_t bytes);
  /// The same, whatever the options have.
  bool admit(Stream& stream, std::int64_t bytes, WhenFull policy);

  /// Returns when everything that was appended is in shards that are complete.
  void flush();
  /// The same, and writes the manifest: a reader finds a finished recording. Spooling goes on.
  void finish();
  /// The same, and lets go of the directory. Appending is an error from then on.
  void close();

  /// All samples of an entry, read back from disk as `RecordedEntry::value` does; flushes first.
  core::Value value(const Stream& stream);
  /// Without symbolic links.
  const std::string& directory() const noexcept;
  /// Is `path` the same directory?
  bool is_at(const std::string& path) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The samples of one entry of a spool.
class TORCHTAP_API Spool::Stream {
 public:
  /// Copies `sample`, of any strided dtype that `save_value` takes; an undefined one keeps its place as None.
  /// With `slot`, the samples of different slots are lists of their own. Throws `c10::TypeError` for a tensor
  /// without plain bytes, `c10::ValueError` for a negative slot. Never waits: see `admit`.
  void append(const at::Tensor& sample, std::optional<std::int64_t> slot = std::nullopt);
  /// How many samples were left out for want of room.
  std::int64_t dropped() const noexcept;
  /// The place of the entry in the recording.
  std::int64_t index() const noexcept;

  struct Impl;
  explicit Stream(std::unique_ptr<Impl> impl);
  ~Stream();

 private:
  friend class Spool;
  std::unique_ptr<Impl> impl_;
};

}  // namespace torchtap::storage
