#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/storage/journal.hpp>
#include <torchtap/storage/pickle.hpp>
#include <torchtap/storage/recover.hpp>
#include <torchtap/storage/shard.hpp>
#include <torchtap/storage/spool.hpp>
#include <utility>

namespace torchtap::storage {
namespace {

using detail::Run;
using detail::Shard;

constexpr std::size_t kFirstPiece = std::size_t{4} << 10;  // what a stream collects before it is queued,
constexpr std::size_t kPiece = std::size_t{64} << 10;  // growing up to this; larger samples are taken apart
constexpr std::size_t kMostRuns = 1024;
constexpr std::int64_t kLongestList = 65536;  // samples of a shard that is no stack; each has its own tensor
constexpr std::size_t kOpenFiles = 64;

/// How often this process is the child of another one, counted from the first spool on.
std::atomic<unsigned> forks{0};

unsigned count_forks() {
  static const bool watching = [] {
    ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
    return true;
  }();
  (void)watching;
  return forks.load();
}

/// Samples on their way to the writer.
struct Piece {
  Spool::Stream::Impl* stream = nullptr;
  std::int64_t slot = -1;
  std::unique_ptr<char[]> data;
  std::size_t capacity = 0;
  std::size_t used = 0;
  bool continues = false;                              // a large sample, which began in the piece before
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // of all samples that have one
  std::vector<Run> runs;                               // the samples that end here
  std::uint64_t begins = 0;                            // the bytes of the large sample that begins here,
  std::vector<std::int64_t> sizes;                     // and its shape
};

/// What the writer has open for one list of samples.
struct Lane {
  std::unique_ptr<Shard> shard;
  bool mixed = false;  // and the journal says so
};

}  // namespace

struct Spool::Stream::Impl {
  Spool::Impl* spool = nullptr;
  std::int64_t index = 0;
  std::atomic<std::int64_t> dropped{0};
  std::atomic<std::int64_t> samples{0};

  // What is being collected, by slot:
  std::mutex mutex;
  std::map<std::int64_t, std::unique_ptr<Piece>> pieces;
  std::unique_ptr<Piece>* last = nullptr;  // the one that was asked for last,
  std::int64_t last_slot = -2;             // of this slot
  std::map<std::int64_t, std::size_t> capacities;

  // The writer's, under `Spool::Impl::disk`:
  std::map<std::int64_t, Lane> lanes;
  std::map<std::int64_t, std::int64_t> next_number;  // of a shard, by slot
  detail::SpooledEntry entry;
  std::int64_t dropped_before = 0;  // by those who wrote the recording that is gone on with
  bool announced = false;           // in the journal
  bool taken = true;                // false for an entry of that recording that no stream was opened for
};

struct Spool::Impl {
  SpoolOptions options;
  std::string directory;
  std::shared_ptr<detail::ShardFolder> folder;
  bool made = false;  // the directory, by us
  detail::Descriptor journal;
  std::uint64_t journal_size = 0;
  std::string created;
  unsigned forks_before = 0;

  std::mutex streams_mutex;
  std::deque<std::unique_ptr<Stream>> streams;

  // The queue. `queued` counts bytes until they are written.
  std::mutex mutex;
  std::condition_variable work, room;
  std::deque<std::unique_ptr<Piece>> queue;
  std::vector<std::unique_ptr<char[]>> spare;  // of kPiece bytes
  std::atomic<std::int64_t> queued{0};
  std::uint64_t pushed = 0, written = 0;  // pieces
  std::atomic<bool> failed{false};
  std::string error;  // why, while it has
  bool stop = false;
  std::atomic<bool> closed{false};
  std::thread writer;

  std::mutex disk;                // everything on disk
  std::list<Shard*> open_shards;  // files that are open, the one used last in front
  std::atomic<std::int64_t> sealed_samples{0};
  std::atomic<std::int64_t> sealed_shards{0};

  void check(const char* call) const;
  void open(const std::string& path);
  void go_on(bool cut_off);
  void run();
  void write(Piece& piece);
  void used(Shard& shard);
  void seal(const std::vector<std::pair<Stream::Impl*, std::int64_t>>& lanes);
  void log(const std::string& lines, bool sync);
  void announce();
  void push(std::unique_ptr<Piece> piece);
  std::unique_ptr<char[]> buffer();
  void flush(const char* call);
  void finish(const char* call);
  void rescue() noexcept;
  [[noreturn]] void raise(const char* call, const std::string& why) const;
  std::vector<Stream::Impl*> all();
};

// --- what streams collect ---

namespace {

/// Its bytes in order, on the CPU.
at::Tensor plain(const at::Tensor& sample) {
  if (sample.device().is_cpu() && sample.is_contiguous() && !sample.is_conj() && !sample.is_neg() &&
      !sample._is_zerotensor()) {
    return sample;
  }
  const core::detail::RecordingMode quiet;
  at::Tensor tensor = sample.detach();
  if (tensor._is_zerotensor()) tensor = tensor.clone();
  return tensor.resolve_conj().resolve_neg().to(at::kCPU).contiguous();
}

void count(std::vector<Run>& runs, bool defined, c10::ScalarType dtype, at::IntArrayRef sizes) {
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.defined == defined &&
        (!defined || (last.dtype == dtype && sizes == at::IntArrayRef(last.sizes)))) {
      ++last.count;
      return;
    }
  }
  runs.push_back({defined, dtype, sizes.vec(), 1});
}

}  // namespace

Spool::Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Spool::Stream::~Stream() = default;

std::int64_t Spool::Stream::dropped() const noexcept {
  return impl_->dropped.load();
}
std::int64_t Spool::Stream::index() const noexcept {
  return impl_->index;
}

void Spool::Stream::append(const at::Tensor& sample, std::int64_t slot) {
  Spool::Impl& spool = *impl_->spool;
  spool.check("Spool::Stream::append");  // before a lock that nobody in a child process would release
  const std::lock_guard lock(impl_->mutex);
  spool.check("Spool::Stream::append");  // whoever closes passes here last
  if (impl_->last_slot != slot) {
    impl_->last = &impl_->pieces[slot];
    impl_->last_slot = slot;
  }
  std::unique_ptr<Piece>& piece = *impl_->last;
  const auto flush = [&] {
    if (piece != nullptr) spool.push(std::move(piece));
  };
  const auto begin = [&](std::unique_ptr<char[]> data, std::size_t capacity) {
    piece = std::make_unique<Piece>();
    piece->stream = impl_.get();
    piece->slot = slot;
    piece->data = std::move(data);
    piece->capacity = capacity;
  };
  if (!sample.defined()) {
    if (piece == nullptr) begin(nullptr, 0);
    count(piece->runs, false, c10::ScalarType::Undefined, {});
    if (piece->runs.size() >= kMostRuns) flush();
    impl_->samples.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const c10::ScalarType dtype = sample.scalar_type();
  const bool familiar = piece != nullptr && piece->dtype == dtype && sample.layout() == c10::kStrided &&
                        sample.device().is_cpu() && sample.has_storage();
  if (!familiar) detail::check_value("Spool::Stream::append", "the sample", core::Value(sample));
  const at::Tensor tensor = plain(sample);
  const auto bytes = static_cast<std::size_t>(tensor.nbytes());
  const auto* data = static_cast<const char*>(tensor.data_ptr());
  const bool other = piece != nullptr && piece->dtype != dtype && piece->dtype != c10::ScalarType::Undefined;
  if (piece != nullptr && (other || piece->used + bytes > piece->capacity)) flush();
  if (bytes > kPiece) {
    for (std::size_t at = 0; at < bytes; at += kPiece) {
      const std::size_t part = std::min(kPiece, bytes - at);
      begin(spool.buffer(), kPiece);
      piece->dtype = dtype;
      piece->used = part;
      piece->continues = at > 0;
      if (at == 0) {
        piece->begins = bytes;
        piece->sizes = sample.sizes().vec();
      }
      std::memcpy(piece->data.get(), data + at, piece->used);
      if (at + piece->used == bytes) count(piece->runs, true, dtype, sample.sizes());
      flush();
    }
  } else {
    if (piece == nullptr) {
      std::size_t& capacity = impl_->capacities[slot];
      const auto most = std::min(kPiece, static_cast<std::size_t>(spool.options.shard_bytes()));
      capacity = std::max(std::min(capacity == 0 ? kFirstPiece : 2 * capacity, most), bytes);
      begin(capacity == kPiece ? spool.buffer() : std::unique_ptr<char[]>(new char[capacity]), capacity);
    }
    piece->dtype = dtype;
    if (bytes != 0) std::memcpy(piece->data.get() + piece->used, data, bytes);
    piece->used += bytes;
    count(piece->runs, true, dtype, sample.sizes());
    if (piece->runs.size() >= kMostRuns) flush();
  }
  impl_->samples.fetch_add(1, std::memory_order_relaxed);
}

// --- the queue ---

void Spool::Impl::check(const char* call) const {
  TORCH_CHECK(forks.load(std::memory_order_relaxed) == forks_before, call,
              ": this process is a child (fork) of the one that spools to \"", directory,
              "\", and only that one can; record to another directory here.");
  TORCH_CHECK_VALUE(!closed.load(std::memory_order_relaxed), call, ": \"", directory,
                    "\" was closed; nothing can be appended any more.");
}

void Spool::Impl::raise(const char* call, const std::string& why) const {
  TORCH_CHECK(false, call, ": ", why, " Kept in \"", directory, "\" are ", sealed_samples.load(),
              " samples in ", sealed_shards.load(), " complete shards; ", queued.load(),
              " bytes wait in memory. Make room, then call flush() or save(): they try again, and recording "
              "goes on.");
}

/// Of kPiece bytes: the one that was used last, which is still in the cache if the disk keeps up.
std::unique_ptr<char[]> Spool::Impl::buffer() {
  {
    const std::lock_guard lock(mutex);
    if (!spare.empty()) {
      auto data = std::move(spare.back());
      spare.pop_back();
      return data;
    }
  }
  return std::unique_ptr<char[]>(new char[kPiece]);
}

void Spool::Impl::push(std::unique_ptr<Piece> piece) {
  queued.fetch_add(static_cast<std::int64_t>(piece->capacity));
  {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(piece));
    ++pushed;
  }
  work.notify_one();
}

bool Spool::admit(Stream& stream, std::int64_t bytes) {
  return admit(stream, bytes, impl_->options.when_full());
}

bool Spool::admit(Stream& stream, std::int64_t bytes, WhenFull policy) {
  Impl& spool = *impl_;
  spool.check("Spool::admit");
  const auto fits = [&] {
    const std::int64_t queued = spool.queued.load();
    return queued == 0 || queued + bytes <= spool.options.queue_bytes();
  };
  if (!spool.failed.load(std::memory_order_relaxed) && fits()) return true;
  std::unique_lock lock(spool.mutex);
  if (!spool.failed && policy == WhenFull::wait) {
    spool.room.wait(lock, [&] { return fits() || spool.failed; });
  }
  if (spool.failed) spool.raise("spool", spool.error);
  if (fits()) return true;
  TORCH_CHECK(policy == WhenFull::drop, "spool: the queue in front of \"", spool.directory,
              "\" is full: ", spool.queued.load(), " bytes of at most ", spool.options.queue_bytes(),
              " wait for the disk, and a sample of ", bytes,
              " bytes has come. It was not recorded; all before it are. See SpoolOptions::when_full.");
  stream.impl_->dropped.fetch_add(1);
  return false;
}

void Spool::Impl::run() {
  std::unique_lock lock(mutex);
  while (true) {
    work.wait(lock, [&] { return stop || (!queue.empty() && !failed); });
    if (stop && (queue.empty() || failed)) return;
    Piece& piece = *queue.front();
    lock.unlock();
    std::string why;
    try {
      const std::lock_guard disk_lock(disk);
      write(piece);
    } catch (const c10::Error& problem) {
      why = problem.what_without_backtrace();
    } catch (const std::exception& problem) {
      why = std::string("spool: ") + problem.what() + ".";
    }
    lock.lock();
    if (why.empty()) {
      queued.fetch_sub(static_cast<std::int64_t>(piece.capacity));
      if (piece.capacity == kPiece) spare.push_back(std::move(piece.data));
      queue.pop_front();
      ++written;
    } else {
      error = why;
      failed = true;
    }
    room.notify_all();
  }
}

// --- the disk ---

void Spool::Impl::log(const std::string& lines, bool sync) {
  // At a place of its own: a line that did not get through is written over.
  detail::write_at("spool", directory + "/" + detail::kJournal, journal.get(), journal_size, lines.data(),
                   lines.size());
  if (sync && ::fsync(journal.get()) != 0) {
    detail::io_error("spool", "fsync", directory + "/" + detail::kJournal, errno);
  }
  journal_size += lines.size();
}

std::vector<Spool::Stream::Impl*> Spool::Impl::all() {
  const std::lock_guard lock(streams_mutex);
  std::vector<Stream::Impl*> result;
  for (const auto& stream : streams) result.push_back(stream->impl_.get());
  return result;
}

void Spool::Impl::announce() {
  std::string lines;
  const auto streams = all();
  for (auto* stream : streams) {
    if (!stream->announced) lines += detail::journal_entry(stream->index, stream->entry);
  }
  if (lines.empty()) return;
  log(lines, false);
  for (auto* stream : streams) stream->announced = true;
}

/// Few files are open at a time, however many modules are recorded.
void Spool::Impl::used(Shard& shard) {
  if (!open_shards.empty() && open_shards.front() == &shard) return;
  open_shards.remove(&shard);
  open_shards.push_front(&shard);
  if (open_shards.size() <= kOpenFiles) return;
  open_shards.back()->release();
  open_shards.pop_back();
}

void Spool::Impl::write(Piece& piece) {
  Stream::Impl& stream = *piece.stream;
  Lane& lane = stream.lanes[piece.slot];
  if (!piece.continues) {
    // What the first sample is, and whether all are like it.
    const bool defined = piece.begins > 0 || piece.runs[0].defined;
    const auto& sizes = piece.begins > 0 ? piece.sizes : piece.runs[0].sizes;
    const bool alike = defined && piece.runs.size() <= 1;
    const auto limit = static_cast<std::uint64_t>(options.shard_bytes());
    bool stacks = alike;
    if (lane.shard != nullptr) {
      const Shard& shard = *lane.shard;
      stacks = alike && (shard.samples() == 0 || (shard.stacked() && shard.first().dtype == piece.dtype &&
                                                  shard.first().sizes == sizes));
      const bool full = shard.bytes() + std::max<std::uint64_t>(piece.used, piece.begins) > limit;
      // Lists are for few samples, and a long stack is not worth becoming one.
      const bool long_list =
          !stacks && (shard.samples() >= kLongestList || (shard.stacked() && shard.bytes() >= limit / 8));
      if (shard.samples() > 0 && (full || long_list)) {
        seal({{&stream, piece.slot}});
        stacks = alike;
      }
    }
    detail::OpenShard line;
    line.entry = stream.index;
    line.slot = piece.slot;
    if (defined) {
      line.dtype = detail::dtype_name(piece.dtype);
      line.shape = sizes;
    }
    if (lane.shard == nullptr) {
      announce();
      std::int64_t& number = stream.next_number[piece.slot];
      line.name = detail::shard_name(stream.index, piece.slot, number);
      if (!stacks) line.stacked = defined ? piece.runs[0].count : 0;
      log(detail::journal_open(line), false);
      ++number;
      lane.shard = std::make_unique<Shard>(folder, line.name, piece.slot);
      lane.mixed = !stacks;
    } else if (!stacks && !lane.mixed) {
      const Run& first = lane.shard->first();
      line.name = lane.shard->name();
      line.dtype = detail::dtype_name(first.dtype);
      line.shape = first.sizes;
      line.stacked = first.count;
      log(detail::journal_open(line), false);
      lane.mixed = true;
    }
    lane.shard->rollback();  // a piece that failed before
  }
  Shard& shard = *lane.shard;
  used(shard);
  if (piece.used > 0) shard.write(piece.dtype, piece.data.get(), piece.used);
  if (!piece.runs.empty()) shard.commit(piece.runs);
}

void Spool::Impl::seal(const std::vector<std::pair<Stream::Impl*, std::int64_t>>& lanes) {
  if (lanes.empty()) return;
  announce();
  std::vector<std::pair<Stream::Impl*, detail::ShardInfo>> sealed;
  for (const auto& [stream, slot] : lanes) {
    Shard& shard = *stream->lanes[slot].shard;
    used(shard);
    shard.complete();
    if (options.sync()) shard.sync();
  }
  std::string lines;
  for (const auto& [stream, slot] : lanes) {
    Shard& shard = *stream->lanes[slot].shard;
    shard.place();
    sealed.emplace_back(stream, shard.info());
    lines += detail::journal_shard(stream->index, sealed.back().second);
  }
  if (options.sync()) detail::sync_directory("spool", directory);
  log(lines, options.sync());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    auto& [stream, info] = sealed[i];
    auto& shard = stream->lanes[lanes[i].second].shard;
    sealed_samples.fetch_add(info.samples);
    sealed_shards.fetch_add(1);
    stream->entry.shards.push_back(std::move(info));
    open_shards.remove(shard.get());
    shard.reset();
  }
}

void Spool::Impl::flush(const char* call) {
  {
    const std::lock_guard streams_lock(streams_mutex);
    for (const auto& stream : streams) {
      const std::lock_guard lock(stream->impl_->mutex);
      for (auto& piece : stream->impl_->pieces) {
        if (piece.second != nullptr) push(std::move(piece.second));
      }
    }
  }
  {
    std::unique_lock lock(mutex);
    const std::uint64_t until = pushed;
    failed = false;  // try again
    work.notify_one();
    room.wait(lock, [&] { return written >= until || failed; });
    if (failed) raise(call, error);
  }
  // Other threads go on recording: a shard in which a sample has only begun is sealed when that has ended.
  std::vector<std::pair<Stream::Impl*, std::int64_t>> waiting;
  bool first = true;
  do {
    {
      const std::lock_guard lock(disk);
      std::vector<std::pair<Stream::Impl*, std::int64_t>> ready, dirty;
      if (first) {
        for (auto* stream : all()) {
          for (const auto& lane : stream->lanes) waiting.emplace_back(stream, lane.first);
        }
      }
      first = false;
      for (const auto& [stream, slot] : waiting) {
        const Lane& lane = stream->lanes[slot];
        if (lane.shard == nullptr) continue;
        if (lane.shard->dirty()) {
          dirty.emplace_back(stream, slot);
        } else if (lane.shard->samples() > 0) {
          ready.emplace_back(stream, slot);
        }
      }
      try {
        seal(ready);
      } catch (const c10::Error& problem) {
        raise(call, problem.what_without_backtrace());
      }
      waiting = std::move(dirty);
    }
    if (waiting.empty()) return;
    std::unique_lock lock(mutex);
    const std::uint64_t before = written;
    room.wait(lock, [&] { return written > before || failed || queue.empty(); });
    if (failed) raise(call, error);
  } while (true);
}

void Spool::Impl::finish(const char* call) {
  flush(call);
  const std::lock_guard lock(disk);
  std::vector<detail::SpooledEntry> entries;
  for (auto* stream : all()) {
    entries.push_back(stream->entry);
    entries.back().dropped = stream->dropped_before + stream->dropped.load();
  }
  detail::write_manifest("spool", directory, folder->fd.get(), created, entries, options.sync());
}

/// Saves what can be saved where closing failed.
void Spool::Impl::rescue() noexcept {
  const std::lock_guard lock(disk);
  try {
    for (auto* stream : all()) {
      for (auto& [slot, lane] : stream->lanes) {
        if (lane.shard == nullptr || lane.shard->samples() == 0) continue;
        try {
          seal({{stream, slot}});
        } catch (const c10::Error&) {  // the next one may fit
        }
      }
    }
  } catch (...) {
  }
}

// --- the spool ---

void Spool::Impl::open(const std::string& path) {
  const std::string call = "spool";
  TORCH_CHECK_VALUE(options.shard_bytes() > 0 && options.queue_bytes() > 0, call,
                    ": shard_bytes and queue_bytes have to be positive; got ", options.shard_bytes(), " and ",
                    options.queue_bytes(), ".");
  TORCH_CHECK_VALUE(!options.overwrite() || !options.append(), call,
                    ": a recording is replaced (overwrite) or gone on with (append), not both.");
  const detail::Target target = detail::resolve(call, path, options.mkdir());
  directory = target.path();
  const std::string journal_path = directory + "/" + detail::kJournal;
  bool fresh = false;
  try {
    struct stat status {};
    const bool there = ::stat(directory.c_str(), &status) == 0;
    TORCH_CHECK_VALUE(there || options.mkdir(), call, ": \"", path,
                      "\" does not exist. Create the directory first, or pass SpoolOptions().mkdir(true).");
    TORCH_CHECK_VALUE(!there || S_ISDIR(status.st_mode), call, ": \"", path,
                      "\" is a file; a recording is a directory, name one.");
    if (!there) {
      if (::mkdir(directory.c_str(), 0777) != 0)
        detail::io_error(call, "create the directory", directory, errno);
      made = true;
    }
    folder = std::make_shared<detail::ShardFolder>();
    folder->call = call;
    folder->path = directory;
    folder->fd = detail::Descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder->fd.valid()) detail::io_error(call, "open", directory, errno);
    std::vector<std::string> names = detail::list(call, directory);
    std::vector<std::string> foreign;
    std::copy_if(names.begin(), names.end(), std::back_inserter(foreign),
                 [](const std::string& name) { return !detail::is_recording_file(name); });
    if (foreign.size() > 5) foreign.resize(5);
    TORCH_CHECK_VALUE(foreign.empty(), call, ": \"", path, "\" holds files that are no part of a recording (",
                      core::detail::quoted(foreign), " …). Choose another directory, for example \"", path,
                      "/recording\" with mkdir(true).");
    TORCH_CHECK_VALUE(!detail::is_spooling(directory), call, ": \"", path,
                      "\" is being written to by another recorder; spool to a directory of its own.");
    TORCH_CHECK_VALUE(names.empty() || options.overwrite() || options.append(), call, ": \"", path,
                      "\" holds a recording already. Choose another directory, or pass "
                      "SpoolOptions().append(true) to go on with "
                      "it, or overwrite(true) to replace it.");
    // Locked before anything there is touched.
    journal = detail::Descriptor(
        ::open(journal_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (!journal.valid()) detail::io_error(call, "create", journal_path, errno);
    TORCH_CHECK_VALUE(::flock(journal.get(), LOCK_EX | LOCK_NB) == 0, call, ": \"", path,
                      "\" is being written to by another recorder; spool to a directory of its own.");
    fresh = std::find(names.begin(), names.end(), detail::kJournal) == names.end();
    created = detail::utc_now();
    if (options.overwrite()) {
      ::unlinkat(folder->fd.get(), "manifest.json", 0);  // first: what is left then is no recording
      for (const auto& name : names) {
        if (name != detail::kJournal) ::unlinkat(folder->fd.get(), name.c_str(), 0);
      }
    } else if (!names.empty()) {
      go_on(/*cut_off=*/!fresh);
    }
    if (::ftruncate(journal.get(), 0) != 0) detail::io_error(call, "truncate", journal_path, errno);
    log(detail::journal_head(created), options.sync());
    if (options.sync()) {
      detail::sync_directory(call, directory);
      detail::sync_directory(call, target.parent);
    }
  } catch (...) {
    if (fresh) ::unlink(journal_path.c_str());
    if (made) ::rmdir(directory.c_str());
    target.undo();
    throw;
  }
}

/// Takes over the recording that is there.
void Spool::Impl::go_on(bool cut_off) {
  if (cut_off) detail::recover_locked(directory, folder->fd.get(), RecoverOptions());
  const detail::Contents contents = detail::read_contents("spool", directory, folder->fd.get(), false);
  created = contents.created;
  for (const auto& entry : contents.entries) {
    auto impl = std::make_unique<Stream::Impl>();
    impl->spool = this;
    impl->index = static_cast<std::int64_t>(streams.size());
    impl->entry = entry;
    impl->dropped_before = entry.dropped;
    impl->announced = true;  // in the manifest
    impl->taken = false;
    streams.emplace_back(new Stream(std::move(impl)));
  }
  for (const auto& name : detail::list("spool", directory)) {
    std::int64_t entry = 0, slot = 0, number = 0;
    if (!detail::parse_shard_name(name.substr(0, name.rfind('.')) + ".pt", entry, slot, number)) continue;
    if (entry < 0 || entry >= static_cast<std::int64_t>(streams.size())) continue;
    auto& next = streams[static_cast<std::size_t>(entry)]->impl_->next_number[slot];
    next = std::max(next, number + 1);
  }
  // Plain files become shards; from here on the journal may speak of what comes behind them.
  detail::write_manifest("spool", directory, folder->fd.get(), created, contents.entries, options.sync());
}

Spool::Spool(const std::string& directory, const SpoolOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->forks_before = count_forks();
  impl_->open(directory);
  try {
    impl_->writer = std::thread([impl = impl_.get()] { impl->run(); });
  } catch (const std::system_error& error) {
    TORCH_CHECK(false, "spool: the system gives no thread: ", error.what(), ".");
  }
}

Spool::~Spool() {
  if (forks.load() != impl_->forks_before) {
    // Its thread does not exist here, and what waits for that can be neither used nor destroyed.
    (void)impl_.release();
    return;
  }
  if (impl_->closed) return;
  try {
    close();
  } catch (...) {
    impl_->rescue();
  }
  if (!impl_->writer.joinable()) return;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    impl_->work.notify_one();
  }
  impl_->writer.join();
}

Spool::Stream& Spool::add(const Entry& entry) {
  impl_->check("Spool::add");
  for (const auto* name : {&entry.path, &entry.type, &entry.kind}) {
    TORCH_CHECK_VALUE(
        detail::is_utf8(*name) && name->find('\0') == std::string::npos,
        "Spool::add: a path, type or kind is not UTF-8, or contains a zero byte; a manifest cannot hold "
        "it. Rename it.");
  }
  const std::lock_guard lock(impl_->streams_mutex);
  for (const auto& stream : impl_->streams) {
    Stream::Impl& known = *stream->impl_;
    if (known.taken || known.entry.path != entry.path || known.entry.kind != entry.kind) continue;
    known.taken = true;
    return *stream;
  }
  auto impl = std::make_unique<Stream::Impl>();
  impl->spool = impl_.get();
  impl->index = static_cast<std::int64_t>(impl_->streams.size());
  impl->entry.path = entry.path;
  impl->entry.aliases = entry.aliases;
  impl->entry.type = entry.type;
  impl->entry.kind = entry.kind;
  impl_->streams.emplace_back(new Stream(std::move(impl)));
  return *impl_->streams.back();
}

void Spool::withdraw(std::int64_t count) noexcept {
  if (forks.load() != impl_->forks_before) return;
  const std::lock_guard disk_lock(impl_->disk);
  const std::lock_guard lock(impl_->streams_mutex);
  for (; count > 0 && !impl_->streams.empty(); --count) {
    Stream::Impl& last = *impl_->streams.back()->impl_;
    if (last.announced || last.samples.load() > 0) return;
    impl_->streams.pop_back();
  }
}

void Spool::flush() {
  impl_->check("Spool::flush");
  impl_->flush("Spool::flush");
}

void Spool::finish() {
  impl_->check("Spool::finish");
  impl_->finish("Spool::finish");
}

void Spool::close() {
  Impl& spool = *impl_;
  if (spool.closed) return;
  spool.check("Spool::close");
  spool.closed = true;
  try {
    spool.finish("Spool::close");
  } catch (...) {
    spool.closed = false;
    throw;
  }
  {
    const std::lock_guard lock(spool.mutex);
    spool.stop = true;
    spool.work.notify_one();
  }
  spool.writer.join();
  const std::lock_guard lock(spool.disk);
  ::unlinkat(spool.folder->fd.get(), detail::kJournal, 0);
  if (spool.options.sync()) ::fsync(spool.folder->fd.get());
  spool.journal = detail::Descriptor();
  if (spool.streams.empty() && spool.made) {  // nothing was ever attached
    ::unlinkat(spool.folder->fd.get(), "manifest.json", 0);
    ::rmdir(spool.directory.c_str());
  }
}

core::Value Spool::value(const Stream& stream) {
  if (!impl_->closed) flush();
  const Recording recording = load(impl_->directory);
  if (stream.index() >= static_cast<std::int64_t>(recording.size()))
    return {};  // none has any samples so far
  return recording.at(stream.index()).value();
}

const std::string& Spool::directory() const noexcept {
  return impl_->directory;
}

bool Spool::is_at(const std::string& path) const {
  struct stat ours {
  }, theirs{};
  return ::fstat(impl_->folder->fd.get(), &ours) == 0 && ::stat(path.c_str(), &theirs) == 0 &&
         ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

}  // namespace torchtap::storage
