// Closes descriptors in forked children.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include <torchtap/base/process.hpp>

namespace torchtap::base {
namespace {

/// A descriptor, and the file it referred to when it was kept: its number may refer to another file by now.
struct Kept {
  int descriptor;
  dev_t device;
  ino_t file;
};

struct Process {
  std::mutex mutex;  // held while the process forks
  std::vector<Kept> kept;
  std::atomic<std::uint64_t> forks{0};
};

Process& process() {
  static auto* const one = new Process;  // outlives all callers
  return *one;
}

/// Runs in a child. It may do little: other threads of the parent are missing.
void close_all() {
  Process& here = process();
  for (const Kept& one : here.kept) {
    struct stat status {};
    if (::fstat(one.descriptor, &status) == 0 && status.st_dev == one.device && status.st_ino == one.file)
      ::close(one.descriptor);
  }
  here.kept.clear();
  here.forks.fetch_add(1, std::memory_order_relaxed);
  here.mutex.unlock();
}

Process& watched_process() {
  static const bool watched = [] {
    ::pthread_atfork([] { process().mutex.lock(); }, [] { process().mutex.unlock(); }, close_all);
    return true;
  }();
  (void)watched;
  return process();
}

}  // namespace

std::uint64_t forks() noexcept {
  static Process& here = watched_process();
  return here.forks.load(std::memory_order_relaxed);
}

NoForks::NoForks() {
  watched_process().mutex.lock();
}

NoForks::~NoForks() {
  process().mutex.unlock();
}

KeptHere::KeptHere(int descriptor, const NoForks&) : descriptor_(descriptor) {
  if (descriptor < 0) return;
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return;
  process().kept.push_back({descriptor, status.st_dev, status.st_ino});
}

KeptHere::KeptHere(KeptHere&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), made_here_(other.made_here_) {}

KeptHere& KeptHere::operator=(KeptHere&& other) noexcept {
  if (this == &other) return *this;
  forget(false);
  descriptor_ = std::exchange(other.descriptor_, -1);
  made_here_ = other.made_here_;
  return *this;
}

void KeptHere::forget(bool close) noexcept {
  const int mine = std::exchange(descriptor_, -1);
  if (mine < 0 || !made_here_) return;  // in a child, the number may be another file's
  const NoForks here_alone;
  auto& kept = process().kept;
  kept.erase(
      std::remove_if(kept.begin(), kept.end(), [&](const Kept& one) { return one.descriptor == mine; }),
      kept.end());
  if (close) ::close(mine);
}

}  // namespace torchtap::base
