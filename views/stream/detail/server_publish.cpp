// The part that the program's threads run: publishing frames.
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include <torchtap/base/error.hpp>
#include <torchtap/views/frames/bulk_copy.hpp>
#include <torchtap/views/stream/detail/server.hpp>
#include <torchtap/views/stream/detail/texts.hpp>
#include <torchtap/views/stream/detail/wire.hpp>

namespace torchtap::views::stream::detail {
namespace {

/// Copied under the lock, which costs less than to take it twice.
constexpr std::uint64_t kSmall = 16384;
/// Once there was no memory for a larger ring, asks again after this time.
constexpr std::uint64_t kAskAgainNs = 1000000000;

std::uint64_t now_ns(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000U + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint32_t number_of_this_thread() noexcept {
  static std::atomic<std::uint32_t> next{0};
  static thread_local const std::uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

std::uint64_t SourceState::readers_of(std::uint64_t sample) noexcept {
  const std::uint64_t wanted = wanted_.load(std::memory_order_acquire);
  std::uint64_t readers = wanted;
  std::uint64_t now = 0;
  for (std::uint64_t left = wanted & rates_.limited.load(std::memory_order_relaxed); left != 0;
       left &= left - 1) {
    const auto place = static_cast<std::size_t>(__builtin_ctzll(left));
    const std::uint64_t every = rates_.every[place].load(std::memory_order_relaxed);
    const std::uint64_t interval = rates_.interval_ns[place].load(std::memory_order_relaxed);
    bool due = every <= 1 || sample % every == 0;
    if (due && interval != 0) {
      if (now == 0) now = now_ns(CLOCK_MONOTONIC);
      std::uint64_t last = last_ns_[place].load(std::memory_order_relaxed);
      due = (last == 0 || now - last >= interval) &&
            last_ns_[place].compare_exchange_strong(last, now, std::memory_order_relaxed);
    }
    if (!due) readers &= ~(left & (~left + 1));
  }
  return readers;
}

HandOver Server::hand_over(std::uint64_t readers) const {
  HandOver handed;
  handed.time_ns = now_ns(CLOCK_REALTIME);
  handed.thread = number_of_this_thread();
  const std::lock_guard lock(mutex_);
  handed.joins = joins_;
  handed.waits = (readers & waiting_) != 0;
  handed.annotation = annotation_;
  return handed;
}

/// The subset of `readers` that were connected at an earlier moment: another reader may have their place by
/// now.
std::uint64_t Server::there_at(const HandOver& handed, std::uint64_t readers) const noexcept {
  std::uint64_t there = readers;
  for (std::uint64_t left = readers; left != 0; left &= left - 1) {
    if (places_[static_cast<std::size_t>(__builtin_ctzll(left))].joined >= handed.joins)
      there &= ~(left & (~left + 1));
  }
  return there;
}

void Server::count_wait(std::chrono::nanoseconds time) {
  const std::lock_guard lock(mutex_);
  counters_.waited_ns += static_cast<std::uint64_t>(time.count());
}

bool Server::publish(const SourceState& source, Frame frame, std::uint64_t readers, const HandOver* handed) {
  if (in_child()) return false;
  frame.path = source.name.path;
  frame.type = source.name.type;
  frame.kind = source.name.kind;
  frame.thread = handed != nullptr ? handed->thread : number_of_this_thread();
  frame.rank = options_.rank;
  std::string result;
  if (!frame.result.empty()) frame.result = result = as_utf8(std::string(frame.result));
  std::string why;  // outlives the frame's text
  std::uint64_t waited_ns = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    readers &= present_;
    if (handed != nullptr) readers = there_at(*handed, readers);
    if (readers == 0 || arena_ == nullptr) return false;
    if (!frame.without_data) frame.text = handed != nullptr ? handed->annotation : annotation_;
    const std::uint64_t bytes = frame_bytes(frame);
    if (bytes <= arena_->capacity() / 2) {
      if (make_room(lock, bytes, waited_ns)) break;
      continue;
    }
    if (bytes <= arena_->most() / 2 && grow(lock, bytes, waited_ns)) continue;
    why = c10::str("the tensor takes ", frame.data_bytes, " bytes, and the publisher's memory of ",
                   arena_->capacity(), " bytes has room for half of that");
    if (bytes <= arena_->most() / 2) why += "; it cannot become larger: " + small_because_;
    frame.without_data = true;
    frame.text = why;
    frame.data_bytes = 0;
  }
  frame.readers = readers;
  frame.sequence = counters_.published++;
  frame.time_ns = handed != nullptr ? handed->time_ns : now_ns(CLOCK_REALTIME);
  counters_.bytes += frame.data_bytes;
  counters_.without_data += frame.without_data ? 1 : 0;
  auto* const room = static_cast<char*>(arena_->reserve(frame_bytes(frame)));
  write_header(frame, room);
  char* const data = room + header_bytes(frame);
  if (frame.data_bytes <= kSmall) {
    if (frame.data_bytes != 0) std::memcpy(data, frame.data, frame.data_bytes);
    arena_->commit(room, readers);
    return true;
  }
  const std::shared_ptr<Arena> arena = arena_;  // also if the last reader leaves meanwhile
  lock.unlock();
  frames::bulk_copy(data, frame.data, frame.data_bytes);
  lock.lock();
  arena->commit(room, readers);
  return true;
}

/// Whether the ring may still grow, and no attempt failed for lack of memory.
bool Server::may_grow() const noexcept {
  return arena_->capacity() < arena_->most() && !growing_ &&
         (small_until_ns_ == 0 || now_ns(CLOCK_MONOTONIC) >= small_until_ns_);
}

/// Enlarges the ring so that frames of `bytes` bytes have room; the lock is free meanwhile. False if it stays
/// as it is, for lack of memory.
bool Server::grow(std::unique_lock<std::mutex>& lock, std::uint64_t bytes, std::uint64_t& waited_ns) {
  if (growing_) {  // by another thread
    nap(lock, waited_ns);
    return true;
  }
  if (!may_grow()) return false;
  const std::shared_ptr<Arena> arena = arena_;  // also if the last reader leaves meanwhile
  const std::uint64_t capacity = arena->larger(bytes);
  const std::uint64_t begin = now_ns(CLOCK_MONOTONIC);
  std::string refused;
  growing_ = true;
  lock.unlock();
  try {
    arena->prepare(capacity);
  } catch (const c10::Error& error) {
    refused = error.what_without_backtrace();
  } catch (const std::exception& error) {
    refused = error.what();
  }
  lock.lock();
  growing_ = false;
  limit_ = 0;
  const std::uint64_t end = now_ns(CLOCK_MONOTONIC);
  counters_.waited_ns += end - begin;
  small_until_ns_ = refused.empty() ? 0 : end + kAskAgainNs;
  small_because_ = std::move(refused);
  if (small_until_ns_ == 0 && arena == arena_) arena->grow(capacity, slowest_of(present_));
  return small_until_ns_ == 0;
}

/// The position of the slowest of some readers; `UINT64_MAX` for none. Believes a cursor as far as it is
/// possible: between where it was and the newest frame.
std::uint64_t Server::slowest_of(std::uint64_t readers) noexcept {
  std::uint64_t slowest = UINT64_MAX;
  for (std::uint64_t left = readers; left != 0; left &= left - 1) {
    Place& place = places_[static_cast<std::size_t>(__builtin_ctzll(left))];
    const auto* const control = reinterpret_cast<const Control*>(place.control.get());
    const std::uint64_t cursor = control->cursor.load(std::memory_order_acquire);
    if (cursor <= arena_->head()) place.seen = std::max(place.seen, cursor);
    slowest = std::min(slowest, place.seen);
  }
  return slowest;
}

/// Looks up to where the ring is free. A reader that is not waited for is in the way of nothing, unless the
/// ring could be larger.
void Server::follow_cursors() noexcept {
  const std::uint64_t slowest = slowest_of(may_grow() ? present_ : waiting_);
  limit_ = slowest == UINT64_MAX ? UINT64_MAX : arena_->limit_for(slowest);
}

bool Server::fits(std::uint64_t bytes) noexcept {
  const std::uint64_t end = arena_->end_after(bytes);
  if (end > arena_->limit_for(arena_->head())) return false;  // other threads still copy there
  if (end <= limit_) return true;
  follow_cursors();
  return end <= limit_;
}

/// From now on overwrites what readers in the way of a frame that ends at `end` have not read.
void Server::demote_in_the_way(std::uint64_t end) noexcept {
  for (std::uint64_t left = waiting_; left != 0; left &= left - 1) {
    const auto index = static_cast<std::size_t>(__builtin_ctzll(left));
    if (arena_->limit_for(places_[index].seen) >= end) continue;
    waiting_ &= ~(std::uint64_t{1} << index);
    places_[index].demoted = true;
    arena_->ledger(index).waits.store(0, std::memory_order_release);
    arena_->ledger(index).demoted.store(1, std::memory_order_release);
  }
  limit_ = 0;
}

/// True if there is room. False after a moment in which the lock was free, and anything may have changed.
/// Enlarges the ring if it can. Adds to `waited_ns`; when that reaches the limit, demotes the readers in the
/// way.
bool Server::make_room(std::unique_lock<std::mutex>& lock, std::uint64_t bytes, std::uint64_t& waited_ns) {
  if (fits(bytes)) return true;
  if (may_grow()) {
    grow(lock, bytes, waited_ns);
    return false;
  }
  const auto most = static_cast<std::uint64_t>(options_.wait_at_most.count());
  if (waited_ns >= most && !growing_) {
    demote_in_the_way(arena_->end_after(bytes));
    if (fits(bytes)) return true;
  }
  nap(lock, waited_ns);
  return false;
}

/// Lets other threads have the lock for a moment.
void Server::nap(std::unique_lock<std::mutex>& lock, std::uint64_t& waited_ns) {
  const std::uint64_t begin = now_ns(CLOCK_MONOTONIC);
  lock.unlock();
  if (waited_ns < 20000) {
    ::sched_yield();
  } else {
    const timespec nap{0, 50000};
    ::nanosleep(&nap, nullptr);
  }
  lock.lock();
  const std::uint64_t waited = now_ns(CLOCK_MONOTONIC) - begin;
  waited_ns += waited;
  counters_.waited_ns += waited;
}

}  // namespace torchtap::views::stream::detail
