// The part of a spool that writes shards and the journal.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/spool_impl.hpp>
#include <torchtap/storage/dtype.hpp>

namespace torchtap::storage {

using detail::Lane;
using detail::Piece;
using detail::Run;
using detail::Shard;

namespace {

constexpr std::int64_t kLongestList = 65536;  // samples in a shard that is not stacked
constexpr std::size_t kOpenFiles = 64;

}  // namespace

void Spool::Impl::log(const std::string& lines, bool sync) {
  // At a fixed offset, so that a retry overwrites an incomplete line.
  base::write_at("spool", where() + "/" + detail::kJournal, journal.get(), journal_size, lines.data(),
                 lines.size());
  if (sync && ::fsync(journal.get()) != 0) {
    base::io_error("spool", "fsync", where() + "/" + detail::kJournal, errno);
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
  std::size_t number = 0;
  {
    const std::lock_guard lock(streams_mutex);
    number = streams.size();
    for (std::size_t i = announced; i < number; ++i) {
      lines += detail::journal_entry(streams[i]->impl_->index, streams[i]->impl_->entry);
    }
  }
  if (lines.empty()) return;
  log(lines, false);
  announced = number;
}

/// Moves `shard` to the front of the open ones, and closes the last one if too many are open.
void Spool::Impl::used(Shard& shard) {
  if (!open_shards.empty() && open_shards.front() == &shard) return;
  open_shards.remove(&shard);
  open_shards.push_front(&shard);
  if (open_shards.size() <= kOpenFiles) return;
  open_shards.back()->release();
  open_shards.pop_back();
}

/// Whether the samples of `piece` can be stacked. Seals the current shard if they need a new one.
bool Spool::Impl::make_room(const Piece& piece, bool alike) {
  Stream::Impl& stream = *piece.stream;
  Lane& lane = stream.lanes[piece.slot];
  if (lane.shard == nullptr) return alike;
  const Shard& shard = *lane.shard;
  const auto limit = static_cast<std::uint64_t>(options.shard_bytes());
  const auto& sizes = piece.first_sizes();
  const bool stacks =
      alike && (shard.samples() == 0 ||
                (shard.stacked() && shard.first().dtype == piece.dtype && shard.first().sizes == sizes));
  const bool full = shard.bytes() + std::max<std::uint64_t>(piece.used, piece.begins) > limit;
  // A list is for few samples, and a long stack stays a stack.
  const bool long_list =
      !stacks && (shard.samples() >= kLongestList || (shard.stacked() && shard.bytes() >= limit / 8));
  if (shard.samples() == 0 || (!full && !long_list)) return stacks;
  Lanes full_and_followers{{&stream, piece.slot}};
  for (Stream::Impl* const follower : stream.followers) {
    for (const auto& [slot, other] : follower->lanes) {
      if (other.shard != nullptr && other.shard->samples() > 0 && !other.shard->dirty())
        full_and_followers.emplace_back(follower, slot);
    }
  }
  seal(full_and_followers);
  return alike;
}

/// Makes sure that there is a shard for the samples that begin in this piece, and that the journal describes
/// it.
void Spool::Impl::begin(Piece& piece) {
  Stream::Impl& stream = *piece.stream;
  Lane& lane = stream.lanes[piece.slot];
  const bool defined = piece.begins > 0 || piece.runs[0].defined;
  const bool stacks = make_room(piece, defined && piece.runs.size() <= 1);
  detail::OpenShard line;
  line.entry = stream.index;
  line.slot = piece.slot;
  if (lane.shard == nullptr) {
    announce();
    if (defined) {
      line.dtype = dtype_name(piece.dtype);
      line.shape = piece.first_sizes();
    }
    std::int64_t& number = stream.next_number[piece.slot];
    detail::ShardName name{stream.index, std::nullopt, number};
    if (piece.slot >= 0) name.slot = piece.slot;
    line.name = name.stem();
    if (!stacks) line.stacked = defined ? piece.runs[0].count : 0;
    log(detail::journal_open(line), false);
    ++number;
    lane.shard = std::make_unique<Shard>(folder, line.name, piece.slot);
    lane.mixed = !stacks;
  } else if (!stacks && !lane.mixed) {
    const Run& first = lane.shard->first();
    line.name = lane.shard->name();
    line.dtype = dtype_name(first.dtype);
    line.shape = first.sizes;
    line.stacked = first.count;
    log(detail::journal_open(line), false);
    lane.mixed = true;
  }
  lane.shard->rollback();  // of a failed attempt
}

std::string Spool::Impl::write_or_say(Piece& piece) {
  try {
    const std::lock_guard lock(disk);
    write(piece);
  } catch (const c10::Error& problem) {
    return problem.what_without_backtrace();
  } catch (const std::exception& problem) {
    return std::string("spool: ") + problem.what() + ".";
  }
  return {};
}

void Spool::Impl::write(Piece& piece) {
  if (!piece.continues) begin(piece);
  Shard& shard = *piece.stream->lanes[piece.slot].shard;
  used(shard);
  if (piece.used > 0) shard.write(piece.dtype, piece.data.get(), piece.used);
  if (!piece.runs.empty()) shard.commit(piece.runs);
}

void Spool::Impl::seal(const Lanes& lanes) {
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
  if (options.sync() && ::fsync(folder->fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    base::io_error("spool", "fsync", where(), errno);
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
        if (piece.second != nullptr) queue.push(std::move(piece.second));
      }
    }
  }
  if (const std::string why = queue.drain(); !why.empty()) raise(call, why);
  // Other threads keep recording: a shard that ends in an incomplete sample is sealed when the sample is
  // complete.
  Lanes waiting;
  {
    const std::lock_guard lock(disk);
    for (auto* stream : all()) {
      for (const auto& lane : stream->lanes) waiting.emplace_back(stream, lane.first);
    }
    waiting = seal_ready(call, waiting);
  }
  while (!waiting.empty()) {
    if (const std::string why = queue.wait_for_some(); !why.empty()) raise(call, why);
    const std::lock_guard lock(disk);
    waiting = seal_ready(call, waiting);
  }
}

/// Called under `disk`. Seals the shards with complete samples, and returns the shards that end in an
/// incomplete one.
Spool::Impl::Lanes Spool::Impl::seal_ready(const char* call, const Lanes& lanes) {
  Lanes ready, dirty;
  for (const auto& [stream, slot] : lanes) {
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
  return dirty;
}

void Spool::Impl::finish(const char* call) {
  flush(call);
  const std::lock_guard lock(disk);
  std::vector<detail::SpooledEntry> entries;
  for (auto* stream : all()) {
    count(*stream);
    entries.push_back(stream->entry);
  }
  const std::string text = detail::manifest_of(created, entries);
  const std::size_t hash = std::hash<std::string>()(text);
  try {
    if (hash != manifest) {
      detail::write_manifest("spool", where(), folder->fd.get(), text, options.sync());
      manifest = hash;
    }
    if (!entries.empty()) put_in_place();
  } catch (const c10::Error& problem) {
    raise(call, problem.what_without_backtrace());
  }
}

/// What tells readers that the recording is finished.
void Spool::Impl::remove_journal(const char* call) {
  const std::lock_guard lock(disk);
  if (::unlinkat(folder->fd.get(), detail::kJournal, 0) != 0 && errno != ENOENT)
    base::io_error(call, "remove", where() + "/" + detail::kJournal, errno);
  if (options.sync()) ::fsync(folder->fd.get());
}

/// Called under `disk`. Has the journal say what is missing, if that changed.
void Spool::Impl::count(Stream::Impl& stream) {
  core::NotRecorded now = stream.before;
  now += stream.not_recorded;
  now.dropped = stream.before.dropped + stream.dropped.load();
  if (now == stream.entry.not_recorded) return;
  announce();
  log(detail::journal_not_recorded(stream.index, now), false);
  stream.entry.not_recorded = std::move(now);
}

bool Spool::Impl::has_samples() {
  const auto streams = all();
  return std::any_of(streams.begin(), streams.end(),
                     [](const auto* stream) { return stream->samples.load() > 0; });
}

/// Seals the shards that can be sealed after closing failed.
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
  if (aside && sealed_samples.load() > 0) staging->leave();
}

}  // namespace torchtap::storage
