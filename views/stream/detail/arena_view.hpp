#pragma once

// The reader's side of a publisher's shared memory.

#include <atomic>
#include <cstdint>

#include <torchtap/views/frames/arena.hpp>
#include <torchtap/views/stream/detail/wire.hpp>
#include <torchtap/views/stream/frame.hpp>

namespace torchtap::views::stream::detail {

using frames::Arena;
using frames::ArenaHead;
using frames::Epoch;
using frames::kArenaMagic;
using frames::kDataOffset;
using frames::kEpochs;
using frames::kPaddingMagic;
using frames::kPage;
using frames::kPlaces;
using frames::Ledger;
using frames::make_memory;

/// A page for each reader, which it writes and the publisher does not trust.
struct Control {
  std::atomic<std::uint64_t> cursor;    // all before it may be overwritten
  std::atomic<std::uint64_t> received;  // for `torchtap streams`
  std::atomic<std::uint64_t> missed;    // for `torchtap streams`
};

/// A reader's side: where it is in the ring.
class ArenaView {
 public:
  /// Maps the memory that a publisher handed over. Throws `c10::ValueError` if it is not an arena.
  ArenaView(const Descriptor& memory, std::uint64_t bytes, const Descriptor& control, std::size_t place,
            std::uint64_t position);

  /// The next frame for this reader, in place; null if there is none yet. Steps over frames for others, and
  /// over what was overwritten. Throws `c10::ValueError` if the memory holds anything else.
  const void* next();
  /// The length of the frame that `next` returned.
  std::uint64_t length() const noexcept { return length_; }
  /// Whether the frame that `next` returned has not been overwritten so far.
  bool valid() const noexcept;
  /// Steps over the frame that `next` returned, and lets the publisher overwrite it. False if it was
  /// overwritten before; it is then missed and not received.
  bool release() noexcept;

  bool closed() const noexcept { return page_->closed.load(std::memory_order_acquire) != 0; }
  bool waits() const noexcept { return ledger_->waits.load(std::memory_order_acquire) != 0; }
  bool demoted() const noexcept { return ledger_->demoted.load(std::memory_order_acquire) != 0; }
  std::uint64_t subscriptions() const noexcept {
    return ledger_->subscriptions.load(std::memory_order_acquire);
  }
  std::uint64_t received() const noexcept { return received_; }
  /// How many frames for this reader were overwritten before it read them; exact when there is nothing more
  /// to read, and whenever it grows.
  std::uint64_t missed() const noexcept { return missed_; }

 private:
  struct Offer {
    std::uint64_t position, offered;
  };
  void find_epoch();
  Offer offer() const noexcept;
  void jump() noexcept;
  void move_to(std::uint64_t position) noexcept;

  Mapping mapping_;
  Mapping control_mapping_;
  const ArenaHead* page_;
  const Ledger* ledger_;
  Control* control_;
  const char* data_;
  std::uint64_t most_;
  std::uint64_t bit_;
  std::uint64_t cursor_;
  Epoch epoch_{};            // of the cursor
  std::uint64_t last_ = 0;   // behind the positions that it is known for
  std::uint64_t known_ = 0;  // how many epochs there were then
  std::uint64_t length_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t missed_ = 0;
};

}  // namespace torchtap::views::stream::detail
