#pragma once

/// Writes samples to disk as they arrive, for recordings larger than memory.
///
/// A spooled recording is a directory with a manifest, as docs/format.md describes it, in which each entry
/// has shards instead of one file: `3-0.pt`, `3-1.pt` … for entry 3 (`3.1-0.pt` … for its slot 1, if all
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
/// it, too. Shards that are being filled are called `….part`.

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/storage/entry.hpp>

namespace torchtap::storage {

/// How to handle a sample that arrives while the queue of the writer is full.
enum class WhenFull {
  /// The recording thread waits until there is room.
  wait,
  /// The sample is dropped and counted.
  drop,
  /// `c10::Error` is thrown; the sample is not recorded, all earlier ones are.
  raise,
};

/// How samples are spooled.
class TORCHTAP_API SpoolOptions {
  /// Create missing directories. Otherwise a missing one is an error.
  TORCH_ARG(bool, mkdir) = false;
  /// Replace an existing recording, which otherwise is an error. The samples go to a folder beside it
  /// (`.NAME.torchtap-new-…`), which takes its place at the first `flush`, `finish` or `close`; until then
  /// the old recording is whole. If the process is killed before, the next recording there removes the
  /// folder; `recover` can finish it earlier.
  TORCH_ARG(bool, overwrite) = false;
  /// Continue an existing recording, spooled or not, finished or cut off by a crash (it is repaired first, as
  /// by `recover`): modules of the same path and kind get further samples, others are added.
  TORCH_ARG(bool, append) = false;
  /// How many bytes of samples a shard holds before the next one is begun; a sample is never split.
  TORCH_ARG(std::int64_t, shard_bytes) = std::int64_t{64} << 20;
  /// How many bytes of samples may wait in memory to be written, besides up to 64 KiB per slot. A larger
  /// sample is admitted when no other waits.
  TORCH_ARG(std::int64_t, queue_bytes) = std::int64_t{256} << 20;
  /// How to handle a sample that arrives while the queue is full.
  TORCH_ARG(WhenFull, when_full) = WhenFull::wait;
  /// Wait until a shard is on the disk (fsync) before it counts as complete, so that it survives a power
  /// failure. Otherwise it survives only a killed process.
  TORCH_ARG(bool, sync) = true;
};

/// Writes a recording sample by sample, in a background thread with a bounded queue.
///
/// Errors of the background thread (disk full, an I/O error) are thrown as `c10::Error` by the next `admit`,
/// and by `flush`, `finish` and `close` until one of these three succeeds: each of them retries. Samples that
/// are not on disk yet wait in memory, and are written once there is room; until then `admit` accepts no
/// further samples.
///
/// Thread-safe. In a child process (fork) every call is an error and the destructor does nothing.
class TORCHTAP_API Spool {
 public:
  /// Opens `directory` and locks it until `close`. Throws `c10::ValueError` if it may not be written to (see
  /// `SpoolOptions`), or if another spool is writing to it; `c10::Error` if the system fails.
  explicit Spool(const std::string& directory, const SpoolOptions& options = {});
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  /// Closes the spool without reporting errors: samples that cannot be written are lost. Call `close` to see
  /// errors. A recording that was to be replaced stays if no sample arrived, or if some cannot be written.
  ~Spool();

  /// The samples of one entry. Valid as long as the spool.
  class Stream;
  /// Adds an entry. With `SpoolOptions::append`, continues the existing entry of the same path and kind, if
  /// it has no stream yet. Throws `c10::ValueError` for names that are not UTF-8.
  Stream& add(const EntryId& id);
  /// Removes the last `count` entries, but no entry that has samples.
  void withdraw(std::int64_t count) noexcept;

  /// Reserves room in the queue; call it before appending samples of `bytes` bytes in total. If the queue is
  /// full, waits, throws, or counts one dropped sample and returns false, as `SpoolOptions::when_full` says.
  bool admit(Stream& stream, std::int64_t bytes);
  /// Admits with `policy` instead of `SpoolOptions::when_full`.
  bool admit(Stream& stream, std::int64_t bytes, WhenFull policy);

  /// Writes all appended samples to complete shards, and returns when that is done. Replaces the old
  /// recording, if there is one; an error says whether that is still in its place or the new one is.
  void flush();
  /// Writes all appended samples to complete shards, which makes room after an error. Does not replace the
  /// old recording.
  void retry();
  /// As `flush`, and writes the manifest, so that readers find a finished recording. Further samples may
  /// follow.
  void finish();
  /// As `finish`, and unlocks the directory. Appending is an error afterwards.
  void close();

  /// All samples of an entry, read back from disk as `RecordedEntry::value` does; flushes first.
  core::Value value(const Stream& stream);
  /// The path of the directory, without symbolic links.
  const std::string& directory() const noexcept;
  /// Whether `path` is the same directory.
  bool is_at(const std::string& path) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The samples of one entry of a spool.
class TORCHTAP_API Spool::Stream {
 public:
  /// Appends a copy of `sample`, a strided tensor of any dtype that `save_value` takes; an undefined one is
  /// stored as None. Samples of different slots are separate lists; there is no slot where one tensor a
  /// sample is recorded. Throws `c10::TypeError` for a tensor without plain bytes, `c10::ValueError` for a
  /// negative slot. Never waits for the disk: see `admit`.
  void append(const at::Tensor& sample, std::optional<std::int64_t> slot = std::nullopt);
  /// Appends the samples of a stack `[n, ...]`, each as `append` does, by one copy. Returns whether some of
  /// them have gone to the writer; the rest waits for more. Throws as `append` does.
  bool append_stack(const at::Tensor& stack);
  /// Has the writer write what waits for more samples, without waiting for that.
  void hand_over();
  /// From now on, a shard of this stream is completed whenever one of `leader` is full, so that readers of a
  /// recording that is being written find both.
  void complete_with(Stream& leader);
  /// Notes why there may be no samples although the module ran; the last text is in the manifest, as
  /// `Entry::note`. Throws `c10::ValueError` if it is not UTF-8.
  void note(const std::string& text);
  /// Says what is missing among the samples of this spool, in place of what was said before. `dropped` is
  /// ignored: `admit` counts. Throws `c10::Error` if the journal cannot be written.
  void not_recorded(const core::NotRecorded& missing);
  /// How many samples were dropped because the queue was full.
  std::int64_t dropped() const noexcept;
  /// How many samples were appended, without those of earlier spools.
  std::int64_t appended() const noexcept;
  /// What earlier spools of a continued recording (`SpoolOptions::append`) have left in the entry.
  struct Before {
    std::int64_t samples = 0;         ///< how many
    std::string dtype;                ///< as in the manifest: "float32", "mixed"
    std::vector<std::int64_t> shape;  ///< of a sample, with -1 where they differ
    bool calls = false;               ///< whether an entry `KIND.calls` says which calls the samples are of
  };
  /// Of this entry.
  Before before() const;
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
