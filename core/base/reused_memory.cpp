// Divides mapped memory into blocks; free neighbours are joined.
#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include <torchtap/base/reused_memory.hpp>

namespace torchtap::base {
namespace {

// The system may use huge pages by itself: they are given back whole, never in parts. They are not asked for:
// where it has to find some first, as in a virtual machine, they take longer than small ones.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kRegion = std::size_t{32} << 20;  // mapped at once, at least
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFew = std::size_t{4} << 10;      // bytes, for which malloc is good enough
constexpr std::size_t kStays = std::size_t{256} << 20;  // free, with its pages

constexpr std::uintptr_t up(std::uintptr_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

class Blocks {
 public:
  static Blocks& instance() {
    static auto* const one = [] {  // outlives all memory that it lends
      ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] { instance().mutex_.unlock(); });
      return new Blocks;
    }();
    return *one;
  }

  /// Zero if there is no memory.
  std::uintptr_t take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto best = by_size_.lower_bound({bytes, 0});
    if (best == by_size_.end()) {
      if (!map(bytes)) return 0;
      best = by_size_.lower_bound({bytes, 0});
    }
    const auto [size, start] = *best;
    remove(start, size);
    if (size > bytes) insert(start + bytes, size - bytes);
    return start;
  }

  void give_back(std::uintptr_t start, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::uintptr_t first = start, last = start + bytes;
    // Neighbours within one region: another region may be unmapped without this one.
    auto next = free_.lower_bound(start);
    if (next != free_.end() && next->first == last && regions_.count(last) == 0) {
      bytes += next->second;
      remove(last, next->second);
    }
    next = free_.lower_bound(start);
    if (next != free_.begin() && regions_.count(start) == 0) {
      const auto [before, size] = *std::prev(next);
      if (before + size == start) {
        remove(before, size);
        start = before;
        bytes += size;
      }
    }
    insert(start, bytes);
    const auto region = regions_.find(start);
    if (free_bytes_ > kStays && region != regions_.end() && region->second == bytes) {
      remove(start, bytes);
      regions_.erase(region);
      ::munmap(reinterpret_cast<void*>(start), bytes);
      return;
    }
    // The system has the pages that became free as a whole.
    const std::uintptr_t from = std::max(up(start, kHugePage), first / kHugePage * kHugePage);
    const std::uintptr_t to = std::min((start + bytes) / kHugePage * kHugePage, up(last, kHugePage));
    if (free_bytes_ > kStays && from < to) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
  }

 private:
  void insert(std::uintptr_t start, std::size_t bytes) {
    free_.emplace(start, bytes);
    by_size_.emplace(bytes, start);
    free_bytes_ += bytes;
  }
  void remove(std::uintptr_t start, std::size_t bytes) {
    free_.erase(start);
    by_size_.erase({bytes, start});
    free_bytes_ -= bytes;
  }

  /// Makes a free block of at least `bytes` bytes.
  bool map(std::size_t bytes) {
    const std::size_t size = up(std::max(bytes, kRegion), kHugePage);
    void* const mapped = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return false;
    const auto address = reinterpret_cast<std::uintptr_t>(mapped);
    const std::uintptr_t start = up(address, kHugePage);
    if (start > address) ::munmap(mapped, start - address);
    const std::uintptr_t rest = address + kHugePage - start;
    if (rest > 0) ::munmap(reinterpret_cast<void*>(start + size), rest);
    regions_.emplace(start, size);
    insert(start, size);
    return true;
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> regions_;  // bytes by address
  std::map<std::uintptr_t, std::size_t> free_;     // the same
  std::set<std::pair<std::size_t, std::uintptr_t>> by_size_;
  std::size_t free_bytes_ = 0;
};

struct Block {
  std::uintptr_t start;
  std::size_t bytes;
};

void give_back(void* context) {
  auto* const block = static_cast<Block*>(context);
  Blocks::instance().give_back(block->start, block->bytes);
  delete block;
}

}  // namespace

c10::Storage reused_storage(std::size_t bytes) {
  at::Allocator* const usual = c10::GetCPUAllocator();
  const std::size_t whole = up(bytes, kAlignment);
  const std::uintptr_t start = bytes < kFew ? 0 : Blocks::instance().take(whole);
  at::DataPtr data =
      start == 0 ? usual->allocate(bytes)
                 : at::DataPtr(reinterpret_cast<void*>(start), new Block{start, whole}, &give_back, at::kCPU);
  return {c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                static_cast<std::int64_t>(bytes), std::move(data), usual,
                                                /*resizable=*/true)};
}

}  // namespace torchtap::base
