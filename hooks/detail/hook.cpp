// Gives each hook its index into the counters of every thread, and detaches the hooks that count forwards.

#include <pthread.h>

#include <mutex>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/detail/hook.hpp>
#include <torchtap/hooks/detail/registry.hpp>

namespace torchtap::hooks::detail {
namespace {

/// Gives each hook a small number, its index into every thread's counters.
struct CounterPlaces {
  std::mutex mutex;
  std::vector<std::size_t> free;
  std::size_t used = 0;
  std::uint64_t serial = 0;

  static CounterPlaces& instance() {
    static auto* places = make();  // hooks may outlive static objects
    return *places;
  }

 private:
  // Locked across fork(): otherwise a child could inherit a mutex that another thread held.
  static CounterPlaces* make() {
    ::pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                     [] { instance().mutex.unlock(); });
    return new CounterPlaces;
  }
};

}  // namespace

// Exported for libraries that torchtap loads into programs.
TORCHTAP_API Hook::Hook() {
  CounterPlaces& places = CounterPlaces::instance();
  const std::lock_guard lock(places.mutex);
  serial = ++places.serial;
  if (places.free.empty()) {
    counter = places.used++;
  } else {
    counter = places.free.back();
    places.free.pop_back();
  }
}

TORCHTAP_API Hook::~Hook() {
  CounterPlaces& places = CounterPlaces::instance();
  const std::lock_guard lock(places.mutex);
  places.free.push_back(counter);
}

ScopeHold::~ScopeHold() {
  Registry::instance().detach(*hook);
}

void check_given(const Hook& hook, const at::Tensor& gradient) {
  TORCH_CHECK_VALUE(gradient.defined(), "hooks: a hook of \"", hook.path, "\" (", hook.type,
                    ") replaced the gradient by an undefined tensor; assign zeros instead.");
}

}  // namespace torchtap::hooks::detail
