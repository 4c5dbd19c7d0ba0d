// Counts forks with pthread_atfork.
#include <pthread.h>

#include <atomic>

#include <torchtap/storage/detail/fork_guard.hpp>

namespace torchtap::storage::detail {
namespace {

/// The number of forks between this process and the one that made the first guard.
std::atomic<unsigned> forks{0};

unsigned count_forks() {
  static const bool watching = [] {
    ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
    return true;
  }();
  (void)watching;
  return forks.load();
}

}  // namespace

ForkGuard::ForkGuard() : forks_(count_forks()) {}

bool ForkGuard::in_child() const noexcept {
  return forks.load(std::memory_order_relaxed) != forks_;
}

}  // namespace torchtap::storage::detail
