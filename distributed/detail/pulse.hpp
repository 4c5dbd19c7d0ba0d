#pragma once

/// What a rank does beside a merge, in a thread of its own, so that others know whether it lives.

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <torchtap/distributed/detail/transport.hpp>

namespace torchtap::distributed::detail {

/// Beats in the store for as long as it lives, and hears the alarm: once the merge fails for any rank, it
/// answers and interrupts whatever this rank waits for. It raises the alarm when a rank that it watches stops
/// beating for the timeout; the root watches all others, and the rank after it the root.
class Pulse {
 public:
  /// `links.roll` is there. Throws nothing.
  Pulse(const Links::Session& links, int root, Milliseconds timeout);
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;
  ~Pulse();

  /// The time between two beats. Who lives answers an alarm within it, and the time that a busy machine
  /// needs.
  static Milliseconds period(Milliseconds timeout);

 private:
  struct Seen {
    std::int64_t beats = 0;
    Clock::time_point at = Clock::now();
  };
  void run();
  bool goes_on();

  const Links::Session links_;
  const Milliseconds timeout_;
  std::map<int, Seen> watched_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace torchtap::distributed::detail
