// Copies and replaces counts that threads add to.
#include <utility>

#include <torchtap/recorders/detail/event_counts.hpp>

namespace torchtap::recorders::detail {

void EventCounts::leave_out(const std::string& why, bool none) {
  const std::lock_guard lock(mutex_);
  if (left_out() == 0) why_left_out_ = why;
  (none ? none_ : left_out_).fetch_add(1, std::memory_order_relaxed);
}

core::NotRecorded EventCounts::now() const {
  const std::lock_guard lock(mutex_);
  return {refused.load(), without_tensors.load(), left_out_.load(), none_.load(),
          why_left_out_,  dropped.load(),         unmatched.load(), unmatched_samples.load()};
}

void EventCounts::put(core::NotRecorded counts) {
  const std::lock_guard lock(mutex_);
  refused.store(counts.refused);
  without_tensors.store(counts.without_tensors);
  left_out_.store(counts.left_out);
  none_.store(counts.none);
  why_left_out_ = std::move(counts.why_left_out);
  dropped.store(counts.dropped);
  unmatched.store(counts.unmatched);
  unmatched_samples.store(counts.unmatched_samples);
}

void EventCounts::add(const core::NotRecorded& counts) {
  const std::lock_guard lock(mutex_);
  refused.fetch_add(counts.refused);
  without_tensors.fetch_add(counts.without_tensors);
  if (left_out() == 0) why_left_out_ = counts.why_left_out;
  left_out_.fetch_add(counts.left_out);
  none_.fetch_add(counts.none);
  dropped.fetch_add(counts.dropped);
  unmatched.fetch_add(counts.unmatched);
  unmatched_samples.fetch_add(counts.unmatched_samples);
}

}  // namespace torchtap::recorders::detail
