// Beats in the store while ranks merge or meet, and notices that they fail.
#include <algorithm>

#include <torchtap/base/thread.hpp>
#include <torchtap/distributed/detail/pulse.hpp>

namespace torchtap::distributed::detail {

Pulse::Pulse(const Links::Session& links, int root, Milliseconds timeout) : links_(links), timeout_(timeout) {
  const int rank = links.roll->rank(), size = links.roll->size();
  for (int other = 0; other < size; ++other) {
    if (other != rank && (rank == root || (other == root && rank == (root + 1) % size))) watched_[other];
  }
  thread_ = base::start_thread("torchtap-ranks", [this] { run(); });
}

Pulse::~Pulse() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Milliseconds Pulse::period(Milliseconds timeout) {
  return std::clamp(timeout / 20, Milliseconds(5), Milliseconds(500));
}

void Pulse::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, period(timeout_), [this] { return stop_; })) {
    lock.unlock();
    const bool good = goes_on();
    lock.lock();
    if (good) continue;
    links_.roll->interrupt();
    links_.data->interrupt();
    return;
  }
}

/// False once the merge failed, or the store ended.
bool Pulse::goes_on() {
  try {
    OverStore& roll = *links_.roll;
    if (roll.alarmed()) {
      roll.answer();
      return false;
    }
    roll.beat();
    const auto now = Clock::now();
    for (auto& [rank, seen] : watched_) {
      const std::int64_t beats = roll.beats_of(rank);
      if (beats != seen.beats || OverStore::sign(beats) != OverStore::Sign::beats) seen = {beats, now};
      if (now - seen.at <= timeout_) continue;
      roll.answer();
      return false;
    }
    return true;
  } catch (const LinkError&) {
    return false;
  }
}

}  // namespace torchtap::distributed::detail
