#include <c10/util/SmallVector.h>

#include <algorithm>
#include <thread>
#include <torchtap/recorders/detail/lanes.hpp>
#include <torchtap/recorders/detail/together.hpp>

namespace torchtap::recorders::detail {
namespace {

/// More threads than processors gain nothing from lanes of their own.
std::size_t lane_count() {
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 2, 64);
}

std::size_t number_of_this_thread() noexcept {
  static std::atomic<std::size_t> next{0};
  static thread_local const std::size_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

Lanes::Lanes() : lanes_(lane_count()) {}

Lanes::Lane& Lanes::mine() {
  return lanes_[number_of_this_thread() % lanes_.size()];
}

bool Lanes::update(c10::ArrayRef<at::Tensor> samples, std::size_t first, std::atomic<std::int64_t>& events) {
  Lane& lane = mine();
  const std::lock_guard lock(lane.mutex);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].defined() && (first + i >= lane.sinks.size() || lane.sinks[first + i] == nullptr))
      return false;
  }
  c10::SmallVector<Update, 2> updates;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].defined()) updates.push_back({&lane.sinks[first + i], &samples[i]});
  }
  update_together(updates);
  events.fetch_add(1, std::memory_order_relaxed);  // under the lock: who empties the lane counts the same
  return true;
}

bool Lanes::put(std::unique_ptr<core::Sink>& sink, std::size_t slot) {
  Lane& lane = mine();
  const std::lock_guard lock(lane.mutex);
  if (lane.sinks.size() <= slot) lane.sinks.resize(slot + 1);
  if (lane.sinks[slot] != nullptr) return false;
  lane.sinks[slot] = std::move(sink);
  return true;
}

void Lanes::merge_into(c10::ArrayRef<core::Sink*> sinks) {
  for (Lane& lane : lanes_) {
    const std::lock_guard lock(lane.mutex);
    for (std::size_t i = 0; i < lane.sinks.size(); ++i) {
      if (lane.sinks[i] == nullptr) continue;
      sinks[i]->merge(*lane.sinks[i]);
      lane.sinks[i] = nullptr;
    }
  }
}

void Lanes::clear() {
  for (Lane& lane : lanes_) {
    const std::lock_guard lock(lane.mutex);
    lane.sinks.clear();
  }
}

}  // namespace torchtap::recorders::detail
