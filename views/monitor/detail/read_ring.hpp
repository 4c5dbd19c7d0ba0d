#pragma once

// Reads the file of a ring (views/monitor/FORMAT.md#rings), whatever a crash left there.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/views/frames/arena.hpp>
#include <torchtap/views/frames/frame.hpp>
#include <torchtap/views/monitor/detail/flight_recorder.hpp>

namespace torchtap::views::monitor::detail {

/// The frames of a forward: one of its state, behind it one of each input; one more when it returned.
inline constexpr const char* kStateFrame = "state";
inline constexpr const char* kReturnedFrame = "returned";
inline constexpr const char* kWindowFrame = "window";
inline constexpr int kRingFormat = 1;
/// The place of the JSON about the ring, which ends with a zero. The ledger before it has the position of the
/// oldest frame that is whole.
inline constexpr std::size_t kRingAbout = frames::kPage + sizeof(frames::Ledger);
inline constexpr std::size_t kRingAboutBytes = frames::kDataOffset - kRingAbout;
inline constexpr std::uint64_t kMostRing = std::uint64_t{16} << 30;

/// The data of the frame of a forward that returned.
struct ReturnedNumbers {
  std::int64_t digest, nan, inf, nanoseconds;
  double sum, magnitude;
};

struct RingContent {
  std::string model, incidents, torchtap, libtorch;
  std::int64_t pid = 0;
  std::vector<KeptForward> forwards;  // oldest first
  std::vector<std::string> windows;   // texts, oldest first
  bool newer = false;  // a newer torchtap wrote it; `damage` says so, and there is nothing else
  std::string damage;  // where reading ended before the newest, and why; empty if it did not
};

/// Reads frames that lie one behind the other, as the ring of `capacity` bytes has them from `position` on.
/// A damaged record ends it.
void read_ring_frames(const char* data, std::size_t size, std::uint64_t position, std::uint64_t capacity,
                      RingContent& content);
/// Reads the whole file of a ring. Throws `c10::ValueError` if it is no ring; any other damage is described
/// in `damage`.
RingContent read_ring(const std::string& bytes, const std::string& path);
/// The forwards of a ring in memory, oldest first, which another process may write to meanwhile.
TORCHTAP_API std::vector<KeptForward> forwards_in(const char* memory);
/// Names of rings in `folder`: "ring-…".
std::vector<std::string> ring_names(const std::string& folder);

}  // namespace torchtap::views::monitor::detail
