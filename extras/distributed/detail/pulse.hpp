#pragma once

/// The thread that shows the other ranks that this rank is alive, while they merge or meet.

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <torchtap/distributed/detail/transport.hpp>

namespace torchtap::distributed::detail {

/// Beats in the store while it exists, and watches for the alarm: once a rank fails, it
/// answers and interrupts this rank's waiting. It also does so if a rank that it watches stops beating for
/// the timeout. The root watches all other ranks, and the rank after the root watches the root.
class Pulse {
 public:
  /// Needs `links.roll`. Throws nothing.
  Pulse(const Links::Session& links, int root, Milliseconds timeout);
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;
  ~Pulse();

  /// The time between two beats. A living rank answers an alarm within it, plus the delay of a busy machine.
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
