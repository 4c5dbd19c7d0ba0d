#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include <torchtap/base/thread.hpp>
#include <torchtap/views/watch/thread_callback.hpp>

namespace torchtap::views::watch {
namespace {

/// Callbacks that wait for their threads. Those of threads that have ended stay, a few bytes each.
struct LeftCallbacks {
  struct One {
    std::uint64_t thread;
    std::uint64_t handle;
  };
  std::mutex mutex;
  std::vector<One> all;
  std::atomic<bool> any{false};

  static LeftCallbacks& instance() {
    static auto* const left = new LeftCallbacks;  // threads may use it while the program ends
    return *left;
  }
};

}  // namespace

ThreadCallback::ThreadCallback(std::uint64_t handle) : thread_(base::number_of_thread()), handle_(handle) {
  sweep();
}

ThreadCallback::~ThreadCallback() {
  if (thread_ == base::number_of_thread()) {
    if (base::thread_lives()) at::removeCallback(handle_);
    return;
  }
  LeftCallbacks& left = LeftCallbacks::instance();
  const std::lock_guard lock(left.mutex);
  left.all.push_back({thread_, handle_});
  left.any = true;
}

void ThreadCallback::sweep() {
  LeftCallbacks& left = LeftCallbacks::instance();
  if (!left.any.load(std::memory_order_acquire)) return;
  const std::uint64_t mine = base::number_of_thread();
  const std::lock_guard lock(left.mutex);
  const auto own = std::partition(left.all.begin(), left.all.end(),
                                  [&](const LeftCallbacks::One& one) { return one.thread != mine; });
  std::for_each(own, left.all.end(), [](const LeftCallbacks::One& one) { at::removeCallback(one.handle); });
  left.all.erase(own, left.all.end());
  left.any = !left.all.empty();
}

}  // namespace torchtap::views::watch
