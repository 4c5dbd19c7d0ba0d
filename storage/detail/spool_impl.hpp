#pragma once

/// The parts of a spool, which its sources share: `spool_stream.cpp` collects samples, `piece_queue.cpp`
/// hands them to a thread, `spool_disk.cpp` writes them, `spool_open.cpp` takes the directory.

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/process.hpp>
#include <torchtap/base/staging.hpp>
#include <torchtap/storage/detail/contents.hpp>
#include <torchtap/storage/detail/piece_queue.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/shard.hpp>
#include <torchtap/storage/spool.hpp>

namespace torchtap::storage {
namespace detail {

/// The open shard of one list of samples.
struct Lane {
  std::unique_ptr<Shard> shard;
  bool mixed = false;  // samples differ in shape, and the journal says so
};

}  // namespace detail

struct Spool::Stream::Impl {
  // Called under `mutex`, for the piece that `last` points to:
  void begin(std::int64_t slot, std::size_t capacity);
  void push();
  void collect(const at::Tensor& sample, std::int64_t slot);
  void collect_none(std::int64_t slot);
  void collect_large(const at::Tensor& tensor, std::int64_t slot);
  void collect_stack(const at::Tensor& stack);
  std::size_t grow(std::int64_t slot, std::size_t bytes);

  Spool::Impl* spool = nullptr;
  std::int64_t index = 0;
  std::atomic<std::int64_t> dropped{0};
  std::atomic<std::int64_t> samples{0};

  // Samples being collected, by slot:
  std::mutex mutex;
  std::map<std::int64_t, std::unique_ptr<detail::Piece>> pieces;
  std::unique_ptr<detail::Piece>* last = nullptr;  // the piece that was appended to last,
  std::int64_t last_slot = -2;                     // and its slot
  std::uint64_t pushed = 0;                        // pieces that went to the writer
  std::map<std::int64_t, std::size_t> capacities;

  // For the writer, under `Spool::Impl::disk`:
  std::map<std::int64_t, detail::Lane> lanes;
  std::map<std::int64_t, std::int64_t> next_number;  // of a shard, by slot
  std::vector<Impl*> followers;  // whose shards are completed with full ones of this stream
  detail::SpooledEntry entry;
  core::NotRecorded before;        // of earlier spools of a continued recording,
  Spool::Stream::Before held;      // and what they left
  core::NotRecorded not_recorded;  // of this spool, but `dropped`
};

struct Spool::Impl {
  SpoolOptions options;
  std::string directory;
  std::shared_ptr<detail::ShardFolder> folder;
  bool made = false;  // the directory, by this spool
  // If a recording will be replaced: the folder beside it that takes the samples until they are whole. Gone
  // when that is done in all its steps.
  std::unique_ptr<base::Staging> staging;
  std::atomic<bool> aside{false};  // whether the old recording is still in its place
  std::string aside_path;
  std::optional<detail::RecordingLock> replaced;
  base::Descriptor journal;
  std::uint64_t journal_size = 0;
  std::string created;
  std::size_t manifest = 0;  // a hash of the one that is on the disk; 0: none of this spool
  const base::MadeHere made_here;

  std::mutex streams_mutex;
  std::deque<std::unique_ptr<Stream>> streams;
  std::size_t announced = 0;  // how many of them the journal or the manifest has
  // Entries of a continued recording before `Spool::add`, by path and kind.
  std::map<std::pair<std::string, std::string>, std::deque<Stream*>> waiting;

  detail::PieceQueue queue{[this](detail::Piece& piece) { return write_or_say(piece); }};
  std::atomic<bool> closed{false};

  std::mutex disk;                        // guards everything on disk
  std::list<detail::Shard*> open_shards;  // with open files, the most recently used first
  std::atomic<std::int64_t> sealed_samples{0};
  std::atomic<std::int64_t> sealed_shards{0};

  void check(const char* call) const;
  void open(const std::string& path);
  void check_options() const;
  std::vector<std::string> take_directory(const std::string& path, bool there);
  void open_aside(const base::Target& target, const std::string& path);
  void put_in_place();
  bool has_samples();
  const std::string& where() const noexcept { return aside ? aside_path : directory; }
  void lock_journal(const std::string& path, bool fresh);
  void go_on(bool cut_off);
  std::string write_or_say(detail::Piece& piece);
  void write(detail::Piece& piece);
  void begin(detail::Piece& piece);
  bool make_room(const detail::Piece& piece, bool alike);
  void used(detail::Shard& shard);
  using Lanes = std::vector<std::pair<Stream::Impl*, std::int64_t>>;  // a stream and its slot
  void seal(const Lanes& lanes);
  Lanes seal_ready(const char* call, const Lanes& lanes);
  void log(const std::string& lines, bool sync);
  void announce();
  void count(Stream::Impl& stream);
  void flush(const char* call);
  void finish(const char* call);
  void remove_journal(const char* call);
  void rescue() noexcept;
  [[noreturn]] void raise(const char* call, const std::string& why) const;
  std::vector<Stream::Impl*> all();
};

}  // namespace torchtap::storage
