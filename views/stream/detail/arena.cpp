// The ring in shared memory: the publisher's side and the readers'.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <torchtap/base/error.hpp>
#include <torchtap/views/stream/detail/arena.hpp>
#include <torchtap/views/stream/detail/memory_left.hpp>
#include <torchtap/views/stream/detail/wire.hpp>

// ThreadSanitizer does not understand fences; it does not see two mappings of one memory as one, either.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

namespace torchtap::views::stream::detail {
namespace {

/// What a reader looks at before it takes a frame.
struct Beginning {
  std::uint32_t magic;
  std::uint64_t length;
  std::uint64_t readers;
};

Beginning beginning_of(const char* frame) noexcept {
  Beginning begin{};
  std::memcpy(&begin.magic, frame, sizeof begin.magic);
  std::memcpy(&begin.length, frame + offsetof(Header, frame_bytes), sizeof begin.length);
  std::memcpy(&begin.readers, frame + offsetof(Header, readers), sizeof begin.readers);
  return begin;
}

/// Throws unless the memory has this size and cannot be made shorter: else reading it could kill the reader.
void check_memory(const Descriptor& memory, std::uint64_t bytes, const char* what) {
  struct stat status {};
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  TORCH_CHECK_VALUE(
      ::fstat(memory.get(), &status) == 0 && static_cast<std::uint64_t>(status.st_size) == bytes &&
          seals >= 0 && (seals & F_SEAL_SHRINK) != 0,
      "views::stream: the publisher handed over something else than its ", what, " of ", bytes, " bytes.");
}

}  // namespace

Descriptor make_memory(const char* name, std::uint64_t size) {
  Descriptor memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(size)) != 0)
    system_error(c10::str("make ", size, " bytes of shared memory"), errno);
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    system_error("seal shared memory", errno);
  return memory;
}

void take_memory(const Descriptor& memory, const Mapping& mapping, std::uint64_t from, std::uint64_t to) {
  // The program needs memory of its own later, and others take some at the same time.
  constexpr std::uint64_t kShare = 4;
  const MemoryLeft left = memory_left();
  TORCH_CHECK(to - from <= left.bytes / kShare, "views::stream: cannot take ", to - from,
              " bytes of shared memory: ", left.of, " leaves ", left.bytes, ", and at most a part in ",
              kShare, " of that is taken for readers");
  ::madvise(mapping.get(), mapping.size(), MADV_HUGEPAGE);  // where the system offers it for shared memory
  int failed = 0;
  do {
    failed = ::fallocate(memory.get(), 0, static_cast<off_t>(from), static_cast<off_t>(to - from));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) system_error(c10::str("take ", to - from, " bytes of shared memory"), errno);
#ifdef MADV_POPULATE_WRITE
  const std::uint64_t page = from / kPage * kPage;
  ::madvise(mapping.get() + page, to - page,
            MADV_POPULATE_WRITE);  // only spares the forward some page faults
#endif
}

void seal_against_writing(const Descriptor& memory) {
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
    system_error("seal shared memory against writing (Linux 5.1 and newer can)", errno);
}

Arena::Arena(std::uint64_t capacity, std::uint64_t most)
    : memory_(make_memory("torchtap-stream", kDataOffset + most)),
      mapping_(memory_, kDataOffset + most, /*writable=*/true),
      epoch_{0, 0, capacity} {
  take_memory(memory_, mapping_, 0, kDataOffset + capacity);
  page_ = new (mapping_.get()) ArenaHead{};
  ledgers_ = new (mapping_.get() + kPage) Ledger[kPlaces]{};
  data_ = mapping_.get() + kDataOffset;
  seal_against_writing(memory_);
  page_->magic = kArenaMagic;
  page_->version = kVersion;
  page_->most = most;
  page_->epoch[0] = epoch_;
  page_->epochs.store(1, std::memory_order_release);
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
  // Where the ring begins again at its front, all that lies there from former epochs is overwritten at once.
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

ArenaView::ArenaView(const Descriptor& memory, std::uint64_t bytes, const Descriptor& control,
                     std::size_t place, std::uint64_t position)
    : most_(bytes - kDataOffset), bit_(std::uint64_t{1} << place), cursor_(position) {
  TORCH_CHECK_VALUE(bytes > kDataOffset && bytes % kAlign == 0 && place < kPlaces,
                    "views::stream: the publisher says that its memory has ", bytes, " bytes, and place ",
                    place, " in it.");
  check_memory(memory, bytes, "memory");
  check_memory(control, kPage, "control page");
  mapping_ = Mapping(memory, bytes, /*writable=*/false);
  control_mapping_ = Mapping(control, kPage, /*writable=*/true);
  page_ = reinterpret_cast<const ArenaHead*>(mapping_.get());
  ledger_ = reinterpret_cast<const Ledger*>(mapping_.get() + kPage) + place;
  control_ = reinterpret_cast<Control*>(control_mapping_.get());
  data_ = mapping_.get() + kDataOffset;
  TORCH_CHECK_VALUE(page_->magic == kArenaMagic && page_->version == kVersion && page_->most == most_,
                    "views::stream: the publisher's memory is not one that this version knows.");
}

/// Looks up how the position of the cursor lies in the ring, unless that is known.
void ArenaView::find_epoch() {
  const std::uint64_t there = page_->epochs.load(std::memory_order_acquire);
  if (cursor_ >= epoch_.begin && cursor_ < last_ && (there == known_ || last_ != UINT64_MAX)) return;
  known_ = there;
  last_ = UINT64_MAX;
  std::size_t number = std::min<std::uint64_t>(there, kEpochs);
  while (number > 1 && page_->epoch[number - 1].begin > cursor_) last_ = page_->epoch[--number].begin;
  epoch_ = page_->epoch[number == 0 ? 0 : number - 1];
  TORCH_CHECK_VALUE(epoch_.capacity != 0 && epoch_.capacity <= most_ && epoch_.offset <= epoch_.capacity &&
                        (epoch_.capacity | epoch_.offset | epoch_.begin) % kAlign == 0 &&
                        epoch_.begin <= cursor_,
                    "views::stream: the publisher's memory does not say where position ", cursor_,
                    " lies; its program may have overwritten the memory.");
}

const void* ArenaView::next() {
  for (;;) {
    const std::uint64_t head = page_->head.load(std::memory_order_acquire);
    if (head <= cursor_) return nullptr;
    find_epoch();
    const std::uint64_t offset = epoch_.offset_of(cursor_);
    const Beginning begin = beginning_of(data_ + offset);
    if (!valid()) {
      jump();
      continue;
    }
    TORCH_CHECK_VALUE(head - cursor_ <= most_, "views::stream: the publisher's memory says that ",
                      head - cursor_, " bytes are to be read, and has ", most_,
                      "; its program may have overwritten the memory.");
    const std::uint64_t room = epoch_.capacity - offset;
    if (begin.magic == kPaddingMagic) {
      move_to(cursor_ + room);
      continue;
    }
    TORCH_CHECK_VALUE(begin.magic == kFrameMagic && begin.length >= sizeof(Header) && begin.length <= room &&
                          begin.length % kAlign == 0 && begin.length <= head - cursor_,
                      "views::stream: at position ", cursor_,
                      " of the publisher's memory no frame begins, where "
                      "one should; its program may have overwritten the memory.");
    if ((begin.readers & bit_) != 0) {
      length_ = begin.length;
      return data_ + offset;
    }
    move_to(cursor_ + begin.length);
  }
}

bool ArenaView::valid() const noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);  // what was read before is checked
  return page_->tail.load(std::memory_order_relaxed) <= cursor_;
}

bool ArenaView::release() noexcept {
  if (!valid()) {
    jump();
    return false;
  }
  control_->received.store(++received_, std::memory_order_relaxed);
  move_to(cursor_ + length_);
  return true;
}

/// What the publisher had for this reader at one moment.
ArenaView::Offer ArenaView::offer() const noexcept {
  Offer offer{};
  // A publisher that was killed in the middle never ends it.
  for (int tries = 0; tries < 1000; ++tries) {
    const std::uint64_t turn = ledger_->turn.load(std::memory_order_acquire);
    offer = {ledger_->position.load(std::memory_order_relaxed),
             ledger_->offered.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (turn % 2 == 0 && ledger_->turn.load(std::memory_order_relaxed) == turn) break;
    ::sched_yield();
  }
  return offer;
}

/// Goes on with the newest frame for this reader, which can often be read before that is overwritten, too.
/// Counts all before it as missed.
void ArenaView::jump() noexcept {
  const std::uint64_t head = page_->head.load(std::memory_order_acquire);
  const Offer offered = offer();  // later than `head`: no further frame for this reader lies between the two
  cursor_ = offered.position;
  const bool there = offered.offered > received_ && valid();
  const std::uint64_t past = offered.offered - (there ? 1 : 0);
  missed_ = past - std::min(past, received_);
  control_->missed.store(missed_, std::memory_order_relaxed);
  move_to(there ? offered.position : std::max(head, offered.position));
}

void ArenaView::move_to(std::uint64_t position) noexcept {
  cursor_ = position;
  control_->cursor.store(position, std::memory_order_release);
}

}  // namespace torchtap::views::stream::detail
