#pragma once

#include <torchtap/views/report/detail/measured_model.hpp>

namespace torchtap::views::report::detail {

/// The clock of a thread stands still while this lives, and its allocations do not count: torchtap's own work
/// is charged to no module. Make it under the session's lock.
class MeasuredModel::Stopped {
 public:
  Stopped(const MeasuredModel& session, ThreadCalls& of)
      : thread(of), session_(session), began_(session.now()) {}
  ~Stopped() { thread.own += session_.now() - began_; }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

  /// When the clock was stopped, on the thread's own clock.
  std::int64_t moment() const noexcept { return began_ - thread.own; }

  ThreadCalls& thread;

 private:
  const MeasuredModel& session_;
  std::int64_t began_;
  HeapWatch::Paused unwatched_;
};

}  // namespace torchtap::views::report::detail
