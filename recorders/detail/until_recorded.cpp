// Counts down the modules that a forward still waits for.
#include <algorithm>
#include <atomic>
#include <utility>

#include <torchtap/recorders/detail/until_recorded.hpp>

namespace torchtap::recorders::detail {
namespace {

std::atomic<int> running{0};  // in all threads; most programs have none

UntilRecorded*& current() noexcept {
  static thread_local UntilRecorded* until = nullptr;
  return until;
}

}  // namespace

UntilRecorded::UntilRecorded(std::vector<const Slots*> waiting)
    : waiting_(std::move(waiting)), outer_(current()) {
  current() = this;
  running.fetch_add(1, std::memory_order_relaxed);
}

UntilRecorded::~UntilRecorded() {
  current() = outer_;
  running.fetch_sub(1, std::memory_order_relaxed);
}

void stop_if_last(const Slots& recorded) {
  if (running.load(std::memory_order_relaxed) == 0) return;
  UntilRecorded* const until = current();
  if (until == nullptr) return;
  const auto found = std::find(until->waiting_.begin(), until->waiting_.end(), &recorded);
  if (found == until->waiting_.end()) return;
  until->waiting_.erase(found);
  if (until->waiting_.empty()) throw StopForward{until};
}

}  // namespace torchtap::recorders::detail
