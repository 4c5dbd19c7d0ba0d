#pragma once

// The forwards that a thread is in.

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

#include <torchtap/base/of_thread.hpp>

namespace torchtap::views::monitor::detail {

/// A forward that has begun, as its watcher left it.
struct OpenForward {
  std::uint64_t watcher = 0;
  std::int64_t number = 0;
  bool sampled = false;
  bool training = false;  // whether the model was, where that is asked for
  bool timed = false;     // whether the monitor's own time is measured
  int depth = 0;          // of the root's call
  int inside = 0;         // calls of the root inside of the root's call
  std::int64_t rows = 0;
  std::int64_t began = 0;      // on the monotonic clock, when the monitor was done
  std::int64_t began_cpu = 0;  // on the clock of this thread, if it is timed
  std::int64_t own = 0;        // nanoseconds that the monitor took before it
  std::int64_t folded = 0;     // what `folded_here` said
  int tops = 0;                // of a hidden root: calls of its outermost modules that returned
  bool ended = false;          // of a hidden root
};

/// Tells the watcher, if it lives, that the thread ended in its forward.
void tell_lost(const OpenForward& forward) noexcept;

/// This thread's open forwards, one for each watcher. A forward that threw stays until the next begins, or
/// the thread ends.
inline c10::SmallVector<OpenForward, 2>& open_forwards_here() noexcept {
  struct Open {
    c10::SmallVector<OpenForward, 2> all;
    ~Open() {
      for (const OpenForward& one : all) tell_lost(one);
    }
  };
  return base::of_thread<Open>().all;
}

/// Null if this thread is in no forward of the watcher.
inline OpenForward* open_forward_here(std::uint64_t watcher) noexcept {
  for (OpenForward& one : open_forwards_here()) {
    if (one.watcher == watcher) return &one;
  }
  return nullptr;
}

/// Whether this thread is in a sampled forward of the watcher.
inline bool samples_here(std::uint64_t watcher) noexcept {
  const OpenForward* const open = open_forward_here(watcher);
  return open != nullptr && open->sampled;
}

/// The forward has ended, or is of a watcher that does not live any more.
inline void forget_forward_here(std::uint64_t watcher) noexcept {
  auto& all = open_forwards_here();
  for (OpenForward& one : all) {
    if (one.watcher != watcher) continue;
    one = all.back();
    all.pop_back();
    return;
  }
}

}  // namespace torchtap::views::monitor::detail
