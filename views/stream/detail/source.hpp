#pragma once

// One module of a publisher, as the forward sees it: one atomic load says whether anybody wants it.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/views/stream/detail/arena_view.hpp>
#include <torchtap/views/stream/frame.hpp>

namespace torchtap::views::stream::detail {

/// The rates at which readers want frames, equal for all modules. Written by the service thread.
struct Rates {
  std::atomic<std::uint64_t> limited{0};  // bit `i`: the reader in place `i` has a limit
  std::array<std::atomic<std::uint64_t>, kPlaces> every{};
  std::array<std::atomic<std::uint64_t>, kPlaces> interval_ns{};
};

/// The name under which a source publishes.
struct SourceName {
  std::string path;
  std::vector<std::string> aliases;
  std::string type;
  Kind kind = Kind::other;
};

/// Thread-safe.
class SourceState {
 public:
  explicit SourceState(SourceName name, const Rates& rates) : name(std::move(name)), rates_(rates) {}

  const SourceName name;

  /// Whether any reader wants frames of this source at all.
  bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed) != 0; }
  /// The readers that want the event with this number: a bit for each. Asked once an event, because it notes
  /// the time for readers that limit frames a second.
  std::uint64_t readers_of(std::uint64_t sample) noexcept;

  /// How many tensors of it were handed over and are not published yet, because a device has to copy them
  /// first. Later tensors wait behind them.
  std::atomic<std::uint32_t> under_way{0};

  /// For the service thread.
  std::uint64_t wanted_by() const noexcept { return wanted_.load(std::memory_order_relaxed); }
  void set_wanted(std::uint64_t readers) noexcept { wanted_.store(readers, std::memory_order_relaxed); }
  void forget(std::size_t place) noexcept { last_ns_[place].store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> wanted_{0};
  const Rates& rates_;
  std::array<std::atomic<std::uint64_t>, kPlaces> last_ns_{};
};

}  // namespace torchtap::views::stream::detail
