#pragma once

// The shared memory of a publisher is a ring of frames, each written once for all readers.
//
// Positions count bytes from the beginning of the stream and never wrap; an epoch says where they lie, and no
// frame lies across the end. Only the publisher writes. A reader maps it read-only, and the seals of the
// memory keep it from doing anything else, so that no reader can spoil or shorten it.
//
// The file is as long as the ring may become, and has holes where no memory was taken. The ring begins small
// and grows into them: then an epoch begins. If no reader needs the bytes behind the newest frame, the epoch
// continues there; otherwise behind the former ring, which stays until the larger one begins again at its
// front.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/views/frames/descriptor.hpp>
#include <torchtap/views/frames/header.hpp>

namespace torchtap::views::frames {

inline constexpr std::size_t kPlaces = 64;                // readers: one bit each in `Frame::readers`
inline constexpr std::uint32_t kArenaMagic = 0x31415454;  // "TTA1"
inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kDataOffset = 2 * kPage;

/// Maps positions from `begin` on to the ring: position p lies at (p - begin + offset) % capacity.
struct Epoch {
  std::uint64_t begin;
  std::uint64_t offset;
  std::uint64_t capacity;

  std::uint64_t offset_of(std::uint64_t position) const noexcept {
    return (position - begin + offset) % capacity;
  }
};
inline constexpr std::size_t kEpochs = 32;  // each at least twice as large as the one before, except the last

/// Page 0.
struct ArenaHead {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t most;                           // bytes that the ring may become; it begins at `kDataOffset`
  alignas(64) std::atomic<std::uint64_t> head;  // behind the last whole frame
  alignas(64) std::atomic<std::uint64_t> tail;  // all before it may have been overwritten
  alignas(64) std::atomic<std::uint64_t> closed;  // 1 when no frame will follow
  alignas(64) std::atomic<std::uint64_t> epochs;  // how many there are; existing ones do not change
  Epoch epoch[kEpochs];
};

/// Page 1: one for each place. It has the publisher's words for the reader there, all of one moment.
struct alignas(64) Ledger {
  std::atomic<std::uint64_t> turn;           // odd while the next two are written
  std::atomic<std::uint64_t> position;       // of the last frame for this reader
  std::atomic<std::uint64_t> offered;        // how many frames were for this reader
  std::atomic<std::uint64_t> subscriptions;  // how many of its requests are in force
  std::atomic<std::uint64_t> demoted;        // 1 when the publisher stopped waiting for it
  std::atomic<std::uint64_t> waits;          // 1 while the publisher waits for it
};
static_assert(sizeof(ArenaHead) <= kPage && sizeof(Ledger) * kPlaces == kPage);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Makes shared memory of `size` bytes whose length no process can change. Throws `c10::Error`.
TORCHTAP_API Descriptor make_memory(const char* name, std::uint64_t size);
/// Makes the bytes of a mapping from `from` to `to` present now, so that writing to them later neither fails
/// nor waits. Throws `c10::Error` if there is too little memory, also if it would take too much of the little
/// that the system or a cgroup leaves to this process: the system would not refuse it, but kill the program.
TORCHTAP_API void take_memory(const Descriptor& memory, const Mapping& mapping, std::uint64_t from,
                              std::uint64_t to);
/// From now on no new mapping of it can be written to, by any process. Throws `c10::Error`.
TORCHTAP_API void seal_against_writing(const Descriptor& memory);

/// The publisher's side. Its owner locks, except where said.
class TORCHTAP_API Arena {
 public:
  /// A ring that has `capacity` bytes, and may grow to `most`. Throws `c10::Error` if there is too little
  /// memory.
  Arena(std::uint64_t capacity, std::uint64_t most);
  /// A ring of `capacity` bytes in an empty file, which outlives the process and does not grow. All its disk
  /// space is taken now. Throws `c10::Error` if there is too little.
  Arena(Descriptor file, std::uint64_t capacity);
  /// A ring of `capacity` bytes that does not grow, in memory of `kDataOffset` bytes more that is zeros and
  /// lives longer.
  Arena(char* memory, std::uint64_t capacity);

  const Descriptor& memory() const noexcept { return memory_; }
  /// The length of the file.
  std::uint64_t bytes() const noexcept { return mapping_.size(); }
  std::uint64_t capacity() const noexcept { return epoch_.capacity; }
  std::uint64_t most() const noexcept { return mapping_.size() - kDataOffset; }
  /// The size to which the ring should grow at least so that frames of `bytes` bytes have room.
  std::uint64_t larger(std::uint64_t bytes) const noexcept;
  /// Takes the memory for a ring of `capacity` bytes. The owner need not lock, if one thread at a time calls
  /// it. Throws `c10::Error` if there is too little.
  void prepare(std::uint64_t capacity) {
    take_memory(memory_, mapping_, bytes_taken(), kDataOffset + capacity);
  }
  /// Frames that come now lie in a ring of `capacity` bytes, whose memory was taken. The bytes from `needed`
  /// on stay.
  void grow(std::uint64_t capacity, std::uint64_t needed) noexcept;
  /// Behind the last whole frame.
  std::uint64_t head() const noexcept { return head_; }
  /// Behind the last room that was given out.
  std::uint64_t reserved() const noexcept { return reserved_; }
  Ledger& ledger(std::size_t place) noexcept { return ledgers_[place]; }
  /// The byte at `position` of the ring.
  const char* at(std::uint64_t position) const noexcept { return data_ + epoch_.offset_of(position); }
  /// The first bytes of the file.
  char* pages() const noexcept { return data_ - kDataOffset; }

  /// The end of the ring after a frame of `bytes` bytes is added.
  std::uint64_t end_after(std::uint64_t bytes) const noexcept { return reserved_ + padding(bytes) + bytes; }
  /// The end that the ring can reach without overwriting `position` or anything behind it.
  std::uint64_t limit_for(std::uint64_t position) const noexcept {
    return position < epoch_.begin ? epoch_.begin + (epoch_.capacity - epoch_.offset)
                                   : position + epoch_.capacity;
  }
  /// Gives out room for a frame. The bytes that were there become invalid.
  void* reserve(std::uint64_t bytes) noexcept;
  /// Declares the frame at `room` whole, which is for `readers`. Readers see it when all before it are whole.
  void commit(const void* room, std::uint64_t readers) noexcept;
  /// No frame will follow.
  void close() noexcept { page_->closed.store(1, std::memory_order_release); }

 private:
  struct Pending {
    std::uint64_t begin, end;
    const void* room;
    std::uint64_t readers;
    bool whole;
  };
  void begin(char* memory, std::uint64_t most);
  std::uint64_t bytes_taken() const noexcept { return kDataOffset + epoch_.capacity; }
  std::uint64_t padding(std::uint64_t bytes) const noexcept;
  void overwrite_up_to(std::uint64_t position) noexcept;
  void publish(const Pending& frame) noexcept;

  Descriptor memory_;
  Mapping mapping_;
  ArenaHead* page_;
  Ledger* ledgers_;
  char* data_;
  Epoch epoch_;  // the last
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t reserved_ = 0;
  std::vector<Pending> pending_;  // in order; one for each thread that copies at this moment
};

}  // namespace torchtap::views::frames
