// The ring in shared memory: the side that writes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/views/frames/arena.hpp>
#include <torchtap/views/frames/detail/memory_left.hpp>

// ThreadSanitizer does not understand fences; it does not see two mappings of one memory as one, either.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

namespace torchtap::views::frames {
Descriptor make_memory(const char* name, std::uint64_t size) {
  Descriptor memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(size)) != 0)
    system_error("views::frames", c10::str("make ", size, " bytes of shared memory"), errno);
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    system_error("views::frames", "seal shared memory", errno);
  return memory;
}

void take_memory(const Descriptor& memory, const Mapping& mapping, std::uint64_t from, std::uint64_t to) {
  // The program needs memory of its own later, and others take some at the same time.
  constexpr std::uint64_t kShare = 4;
  const detail::MemoryLeft left = detail::memory_left();
  TORCH_CHECK(to - from <= left.bytes / kShare, "views::frames: cannot take ", to - from,
              " bytes of shared memory: ", left.of, " leaves ", left.bytes, ", and at most a part in ",
              kShare, " of that is taken for readers");
  ::madvise(mapping.get(), mapping.size(), MADV_HUGEPAGE);  // where the system offers it for shared memory
  int failed = 0;
  do {
    failed = ::fallocate(memory.get(), 0, static_cast<off_t>(from), static_cast<off_t>(to - from));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0)
    system_error("views::frames", c10::str("take ", to - from, " bytes of shared memory"), errno);
#ifdef MADV_POPULATE_WRITE  // since Linux 5.14
  const std::uint64_t page = from / kPage * kPage;
  ::madvise(mapping.get() + page, to - page,
            MADV_POPULATE_WRITE);  // only spares the forward some page faults
#endif
}

void seal_against_writing(const Descriptor& memory) {
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
    system_error("views::frames", "seal shared memory against writing (Linux 5.1 and newer can)", errno);
}

Arena::Arena(std::uint64_t capacity, std::uint64_t most)
    : memory_(make_memory("torchtap-stream", kDataOffset + most)),
      mapping_(memory_, kDataOffset + most, /*writable=*/true),
      epoch_{0, 0, capacity} {
  take_memory(memory_, mapping_, 0, kDataOffset + capacity);
  begin(mapping_.get(), most);
  seal_against_writing(memory_);
}

Arena::Arena(Descriptor file, std::uint64_t capacity) : memory_(std::move(file)), epoch_{0, 0, capacity} {
  // A full disk is an error here, and not a signal that kills the program when it writes.
  int failed = 0;
  do {
    failed = ::posix_fallocate(memory_.get(), 0, static_cast<off_t>(kDataOffset + capacity));
  } while (failed == EINTR);
  if (failed != 0)
    system_error("views::frames", c10::str("take ", kDataOffset + capacity, " bytes for a ring"), failed);
  mapping_ = Mapping(memory_, kDataOffset + capacity, /*writable=*/true);
  begin(mapping_.get(), capacity);
}

Arena::Arena(char* memory, std::uint64_t capacity) : epoch_{0, 0, capacity} {
  begin(memory, capacity);
}

void Arena::begin(char* memory, std::uint64_t most) {
  page_ = new (memory) ArenaHead{};
  ledgers_ = new (memory + kPage) Ledger[kPlaces]{};
  data_ = memory + kDataOffset;
  page_->version = kVersion;
  page_->most = most;
  page_->epoch[0] = epoch_;
  page_->epochs.store(1, std::memory_order_release);
  page_->magic = kArenaMagic;
  pending_.reserve(kPlaces);
}

std::uint64_t Arena::larger(std::uint64_t bytes) const noexcept {
  const std::uint64_t wanted = std::max(2 * epoch_.capacity, epoch_.capacity + 4 * bytes);
  return std::min((wanted + kPage - 1) / kPage * kPage, most());
}

void Arena::grow(std::uint64_t capacity, std::uint64_t needed) noexcept {
  const std::uint64_t number = page_->epochs.load(std::memory_order_relaxed);
  if (capacity <= epoch_.capacity || number == kEpochs) return;
  const std::uint64_t front =
      reserved_ - epoch_.offset_of(reserved_);  // the position there, if it began again
  if (reserved_ - epoch_.begin + epoch_.offset <= epoch_.capacity) {
    epoch_.capacity = capacity;  // it has not come to its end yet
  } else if (std::min(needed, head_) >= front) {
    overwrite_up_to(front);
    epoch_ = {front, 0, capacity};
  } else {
    epoch_ = {reserved_, epoch_.capacity, capacity};
  }
  page_->epoch[number] = epoch_;
  page_->epochs.store(number + 1, std::memory_order_release);
}

/// From now on readers know that what lies before `position` may be overwritten.
void Arena::overwrite_up_to(std::uint64_t position) noexcept {
  if (position <= tail_) return;
  tail_ = position;
  page_->tail.store(tail_, std::memory_order_relaxed);
  // Before anything is overwritten, also by stores that bypass the cache.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::uint64_t Arena::padding(std::uint64_t bytes) const noexcept {
  const std::uint64_t offset = epoch_.offset_of(reserved_);
  return offset + bytes > epoch_.capacity ? epoch_.capacity - offset : 0;
}

void* Arena::reserve(std::uint64_t bytes) noexcept {
  const std::uint64_t pad = padding(bytes);
  const std::uint64_t end = reserved_ + pad + bytes;
  // If the ring begins again at its front, all frames of former epochs there are overwritten at once.
  if (end - epoch_.begin + epoch_.offset > epoch_.capacity)
    overwrite_up_to(std::max(epoch_.begin, end - std::min(end, epoch_.capacity)));
  if (pad != 0) {
    char* const at = data_ + epoch_.offset_of(reserved_);
    std::memcpy(at, &kPaddingMagic, sizeof kPaddingMagic);
  }
  reserved_ = end;
  void* const room = data_ + epoch_.offset_of(end - bytes);
  pending_.push_back({end - bytes, end, room, 0, false});
  return room;
}

void Arena::commit(const void* room, std::uint64_t readers) noexcept {
  for (Pending& frame : pending_) {
    if (frame.room != room || frame.whole) continue;
    frame.readers = readers;
    frame.whole = true;
    break;
  }
  std::size_t whole = 0;
  while (whole < pending_.size() && pending_[whole].whole) publish(pending_[whole++]);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(whole));
}

void Arena::publish(const Pending& frame) noexcept {
  // First in the ledgers, so that a frame which is seen has always been counted.
  for (std::uint64_t left = frame.readers; left != 0; left &= left - 1) {
    Ledger& ledger = ledgers_[__builtin_ctzll(left)];
    const std::uint64_t turn = ledger.turn.load(std::memory_order_relaxed);
    ledger.turn.store(turn + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    ledger.position.store(frame.begin, std::memory_order_relaxed);
    ledger.offered.store(ledger.offered.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    ledger.turn.store(turn + 2, std::memory_order_release);
  }
  head_ = frame.end;
  page_->head.store(head_, std::memory_order_release);
}

}  // namespace torchtap::views::frames
