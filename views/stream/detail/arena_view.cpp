// Finds a reader's frames in the ring of a publisher, which need not be trusted.
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include <torchtap/base/error.hpp>
#include <torchtap/views/stream/detail/arena_view.hpp>

// ThreadSanitizer does not understand fences; it does not see two mappings of one memory as one, either.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

namespace torchtap::views::stream::detail {
namespace {

/// The part of a frame that a reader checks first.
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

/// A copy of the publisher's words for this reader, of one moment.
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
