#include "area.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>

namespace torchtap::tools::preload {
namespace {

// What a process takes at once. It can be written to after the program has closed all descriptors.
constexpr uint64_t kRoom = uint64_t{8} << 20;

}  // namespace

bool Area::open(const char* variable) {
  header = nullptr;
  char* end = nullptr;
  descriptor_ = static_cast<int>(::strtol(variable, &end, 10));
  device_ = ::strtoull(end, &end, 10);
  inode_ = ::strtoull(end, &end, 10);
  if (*end != ' ' || ::strlen(end + 1) >= sizeof path_) return false;
  ::strcpy(path_, end + 1);
  header = static_cast<Header*>(map(0, kFirstPage));
  return header != nullptr;
}

void* Area::map(uint64_t at, uint64_t bytes) const {
  const auto is_area = [this](int file) {
    struct stat status {};
    return ::fstat(file, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
  };
  const bool inherited = is_area(descriptor_);
  const int file = inherited ? descriptor_ : ::open(path_, O_RDWR | O_CLOEXEC);
  void* memory = MAP_FAILED;
  if (inherited || (file >= 0 && is_area(file)))
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file,
                    static_cast<off_t>(at));
  if (!inherited && file >= 0) ::close(file);
  if (memory == MAP_FAILED) return nullptr;
  ::madvise(memory, bytes, MADV_DONTDUMP);
  return memory;
}

bool Area::enter() {
  const uint32_t index = header->pages.fetch_add(1);
  if (index >= kMostPages) return false;
  void* const memory = map(kFirstPage + index * kPageBytes, kPageBytes);
  if (memory == nullptr) return false;
  page = new (memory) Page;
  number = index + 1;
  room_left_ = 0;
  uint64_t at = 0;
  static_cast<void>(take(0, at));
  page->process = ::getpid();
  page->started = start_of(page->process);
  page->pids = namespace_of_pids();
  const int comm = ::open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  const ssize_t size = comm < 0 ? 0 : ::read(comm, page->name, sizeof page->name - 1);
  if (comm >= 0) ::close(comm);
  page->name[size > 0 ? size - 1 : 0] = '\0';  // its end is a new line
  return true;
}

char* Area::take(uint64_t bytes, uint64_t& at) {
  bytes = (bytes + 63) / 64 * 64;
  if (room_left_ == 0 || bytes > room_left_) {
    const uint64_t whole = bytes > kRoom ? (bytes + kPageBytes - 1) / kPageBytes * kPageBytes : kRoom;
    const uint64_t from = header->next.fetch_add(whole);
    if (from + whole > kAreaBytes) return nullptr;
    void* const memory = map(from, whole);
    if (memory == nullptr) return nullptr;
    room_ = static_cast<char*>(memory);
    room_at_ = from;
    room_left_ = whole;
  }
  char* const taken = room_;
  at = room_at_;
  room_ += bytes;
  room_at_ += bytes;
  room_left_ -= bytes;
  return taken;
}

void Area::give_back(char* room, uint64_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(room) + kPageBytes - 1) / kPageBytes * kPageBytes;
  const auto end = (reinterpret_cast<uintptr_t>(room) + bytes) / kPageBytes * kPageBytes;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE);
}

uint64_t start_of(int process) {
  char file[32], text[1024];
  ::snprintf(file, sizeof file, "/proc/%d/stat", process);
  const int from = ::open(file, O_RDONLY | O_CLOEXEC);
  if (from < 0) return 0;
  const ssize_t size = ::read(from, text, sizeof text - 1);
  ::close(from);
  text[size > 0 ? size : 0] = '\0';
  const char* next = ::strrchr(text, ')');  // behind the name, which may hold anything
  if (next == nullptr || next[1] == '\0' || next[2] == 'Z' || next[2] == 'X') return 0;
  for (int field = 2; field < 22 && next != nullptr; ++field) next = ::strchr(next + 1, ' ');
  return next == nullptr ? 0 : ::strtoull(next, nullptr, 10);
}

uint64_t namespace_of_pids() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

}  // namespace torchtap::tools::preload
