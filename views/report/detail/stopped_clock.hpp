#pragma once

#include <torchtap/views/report/detail/measured_model.hpp>

namespace torchtap::views::report::detail {

/// The clock of a thread stands still while this lives, and its allocations do not count: torchtap's own work
/// is charged to no module. Make it under the measured model's lock.
class MeasuredModel::Stopped {
 public:
  Stopped(const MeasuredModel& measured, ThreadCalls& of)
      : thread(of), measured_(measured), began_(measured.now()) {}
  ~Stopped() { thread.own += measured_.now() - began_; }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

  /// When the clock was stopped, on the thread's own clock.
  std::int64_t moment() const noexcept { return began_ - thread.own; }

  ThreadCalls& thread;

 private:
  const MeasuredModel& measured_;
  std::int64_t began_;
  HeapWatch::Paused unwatched_;
};

}  // namespace torchtap::views::report::detail
