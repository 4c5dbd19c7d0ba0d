// Assigns threads to places, and folds into their sinks.
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <thread>

#include <torchtap/recorders/detail/thread_sinks.hpp>
#include <torchtap/recorders/detail/together.hpp>

namespace torchtap::recorders::detail {
namespace {

/// One place per processor: further threads would gain nothing, and share places.
std::size_t place_count() {
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 2, 64);
}

std::size_t number_of_this_thread() noexcept {
  static std::atomic<std::size_t> next{0};
  static thread_local const std::size_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

ThreadSinks::ThreadSinks() : places_(place_count()) {}

ThreadSinks::Place& ThreadSinks::mine() {
  return places_[number_of_this_thread() % places_.size()];
}

bool ThreadSinks::update(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot,
                         std::atomic<std::int64_t>& events) {
  Place& place = mine();
  const std::lock_guard lock(place.mutex);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::size_t slot = first_slot + i;
    if (samples[i].defined() && (slot >= place.sinks.size() || place.sinks[slot] == nullptr)) return false;
  }
  c10::SmallVector<Update, 2> updates;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].defined()) updates.push_back({&place.sinks[first_slot + i], &samples[i]});
  }
  update_together(updates);
  ++place.events;
  events.fetch_add(1, std::memory_order_relaxed);  // under the lock, so that it agrees with `place.events`
  return true;
}

bool ThreadSinks::put(std::unique_ptr<core::Sink>& sink, std::size_t slot) {
  Place& place = mine();
  const std::lock_guard lock(place.mutex);
  if (place.sinks.size() <= slot) place.sinks.resize(slot + 1);
  if (place.sinks[slot] != nullptr) return false;
  place.sinks[slot] = std::move(sink);
  return true;
}

void ThreadSinks::merge_into(c10::ArrayRef<core::Sink*> sinks, std::int64_t& events) {
  for (Place& place : places_) {
    const std::lock_guard lock(place.mutex);
    for (std::size_t i = 0; i < place.sinks.size(); ++i) {
      if (place.sinks[i] == nullptr) continue;
      sinks[i]->merge(*place.sinks[i]);
      place.sinks[i] = nullptr;
    }
    events += place.events;
    place.events = 0;
  }
}

std::int64_t ThreadSinks::clear() {
  std::int64_t events = 0;
  for (Place& place : places_) {
    const std::lock_guard lock(place.mutex);
    place.sinks.clear();
    events += place.events;
    place.events = 0;
  }
  return events;
}

}  // namespace torchtap::recorders::detail
