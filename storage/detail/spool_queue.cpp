// The part of a spool that hands samples to the writer thread.
#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/spool_impl.hpp>

namespace torchtap::storage {

using detail::kPiece;
using detail::Piece;

void Spool::Impl::check(const char* call) const {
  TORCH_CHECK(made_here, call, ": this process is a child (fork) of the one that spools to \"", directory,
              "\", and only the parent can write there; spool to another directory here.");
  TORCH_CHECK_VALUE(!closed.load(std::memory_order_relaxed), call, ": \"", directory,
                    "\" was closed; nothing can be appended any more.");
}

void Spool::Impl::raise(const char* call, const std::string& why) const {
  TORCH_CHECK(false, call, ": ", why, " \"", where(), "\" holds ", sealed_samples.load(), " samples in ",
              sealed_shards.load(), " complete shards; ", queued.load(), " bytes wait in memory.",
              aside ? " The recording that they replace is still at \"" + directory + "\"." : "",
              " Make room, then call flush() or save(): they try again, and recording continues.");
}

/// A buffer of kPiece bytes: preferably the last released one, which may still be in the cache.
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
  spool.check("storage::Spool::admit");
  const auto fits = [&] {
    const std::int64_t queued = spool.queued.load();
    return queued == 0 || queued + bytes <= spool.options.queue_bytes();
  };
  if (!spool.failed.load(std::memory_order_relaxed) && fits()) return true;
  std::unique_lock lock(spool.mutex);
  if (!spool.failed && policy == WhenFull::wait) {
    spool.room.wait(lock, [&] { return fits() || spool.failed; });
    if (!spool.failed) return true;  // another thread may have filled the room again
  }
  if (spool.failed) spool.raise("spool", spool.error);
  if (fits()) return true;
  TORCH_CHECK(policy == WhenFull::drop, "spool: the queue in front of \"", spool.directory,
              "\" is full: ", spool.queued.load(), " bytes of at most ", spool.options.queue_bytes(),
              " wait for the disk, and a sample of ", bytes,
              " bytes arrived. It was not recorded; all before it are. See SpoolOptions::when_full.");
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
    // Not for each piece: waking whoever waits for a long queue takes longer than writing a piece.
    if (written % 16 == 0 || queue.empty() || failed) room.notify_all();
  }
}

}  // namespace torchtap::storage
