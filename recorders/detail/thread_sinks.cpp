// Assigns threads to places, and folds into their sinks.
#include <c10/util/SmallVector.h>
#include <pthread.h>

#include <algorithm>
#include <thread>

#include <torchtap/base/of_thread.hpp>
#include <torchtap/recorders/detail/thread_sinks.hpp>
#include <torchtap/recorders/detail/together.hpp>

namespace torchtap::recorders::detail {
namespace {

/// More places than processors: two threads of one place wait for each other although they could run at the
/// same time, even if the thread with the lock does not run.
std::size_t place_count() {
  static const std::size_t count =
      std::clamp<std::size_t>(4 * std::size_t{std::thread::hardware_concurrency()}, 8, 64);
  return count;
}

/// The place of a thread, by a small number that no other thread has at the same time.
class ThreadPlace {
 public:
  ThreadPlace() {
    Taken& taken = Taken::instance();
    const std::lock_guard lock(taken.mutex);
    const auto free = std::find(taken.numbers.begin(), taken.numbers.end(), false);
    number_ = static_cast<std::size_t>(free - taken.numbers.begin());
    place = number_ % place_count();
    if (free == taken.numbers.end()) taken.numbers.push_back(false);
    taken.numbers[number_] = true;
  }
  ~ThreadPlace() {
    Taken& taken = Taken::instance();
    const std::lock_guard lock(taken.mutex);
    taken.numbers[number_] = false;
  }
  ThreadPlace(const ThreadPlace&) = delete;
  ThreadPlace& operator=(const ThreadPlace&) = delete;

  std::size_t place;

 private:
  std::size_t number_;
  struct Taken {
    std::mutex mutex;
    std::vector<bool> numbers;

    static Taken& instance() {
      // Locked across fork(): otherwise a child could inherit a mutex that another thread held.
      static auto* taken = [] {
        ::pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                         [] { instance().mutex.unlock(); });
        return new Taken;  // threads may outlive static objects
      }();
      return *taken;
    }
  };
};

}  // namespace

ThreadSinks::ThreadSinks() : places_(place_count()) {}

ThreadSinks::Place& ThreadSinks::mine() {
  return places_[base::of_thread<ThreadPlace>().place];
}

bool ThreadSinks::update(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot,
                         std::atomic<std::int64_t>* events) {
  Place& place = mine();
  const std::lock_guard lock(place.mutex);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::size_t slot = first_slot + i;
    if (samples[i].defined() && (slot >= place.sinks.size() || place.sinks[slot] == nullptr)) return false;
  }
  if (samples.size() == 1 && samples[0].defined()) {
    place.sinks[first_slot]->update(samples[0]);
  } else {
    c10::SmallVector<Update, 2> updates;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (samples[i].defined()) updates.push_back({&place.sinks[first_slot + i], &samples[i]});
    }
    update_together(updates);
  }
  ++place.events;
  if (events != nullptr) {
    events->fetch_add(1, std::memory_order_relaxed);  // under the lock, so that it agrees with `place.events`
  } else {
    place.folded.store(place.folded.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  return true;
}

std::int64_t ThreadSinks::folded() const noexcept {
  std::int64_t folded = 0;
  for (const Place& place : places_) folded += place.folded.load(std::memory_order_relaxed);
  return folded;
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
