// Closes descriptors in forked children.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/views/stream/detail/descriptor.hpp>

namespace torchtap::views::stream::detail {
namespace {

std::atomic<unsigned> fork_count{0};

/// The open descriptors. Never destroyed, because threads may close some while the program ends.
struct Open {
  std::mutex mutex;
  std::set<int> all;
};

Open& open_descriptors() {
  static Open* const open = [] {
    auto* made = new Open;
    ::pthread_atfork([] { open_descriptors().mutex.lock(); }, [] { open_descriptors().mutex.unlock(); },
                     [] {
                       fork_count.fetch_add(1);
                       for (const int fd : open_descriptors().all) ::close(fd);
                       open_descriptors().all.clear();
                       open_descriptors().mutex.unlock();
                     });
    return made;
  }();
  return *open;
}

}  // namespace

unsigned forks() noexcept {
  return fork_count.load(std::memory_order_relaxed);
}

Descriptor::Descriptor(int fd) : fd_(fd) {
  if (fd < 0) return;
  Open& open = open_descriptors();
  forks_ = forks();
  const std::lock_guard lock(open.mutex);
  open.all.insert(fd);
}

void Descriptor::close() noexcept {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || forks_ != forks()) return;  // the number may be another file's in the child
  Open& open = open_descriptors();
  const std::lock_guard lock(open.mutex);
  open.all.erase(fd);
  ::close(fd);
}

Mapping::Mapping(const Descriptor& descriptor, std::size_t size, bool writable)
    : size_(size), forks_(forks()) {
  void* const at =
      ::mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (at == MAP_FAILED) system_error(c10::str("map ", size, " bytes of shared memory"), errno);
  at_ = static_cast<char*>(at);
  ::madvise(at, size, MADV_DONTFORK);
}

Mapping::~Mapping() {
  if (at_ != nullptr && forks_ == forks()) ::munmap(at_, size_);
}

void system_error(const std::string& what, int error) {
  TORCH_CHECK(false, "views::stream: cannot ", what, ": ", std::strerror(error), ".");
}

}  // namespace torchtap::views::stream::detail
