// The counting allocator.
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <torch/version.h>

#include <atomic>
#include <limits>
#include <utility>

#include <torchtap/views/report/detail/heap.hpp>

namespace torchtap::views::report::detail {
namespace {

std::atomic<std::int64_t> held{0}, peak{0}, allocations{0};
std::atomic<bool> watched{false};
thread_local bool paused = false;

void add(std::int64_t bytes) noexcept {
  const std::int64_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (paused) return;
  if (bytes > 0) allocations.fetch_add(1, std::memory_order_relaxed);
  std::int64_t most = peak.load(std::memory_order_relaxed);
  while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

// Blocks may be freed at any time, so what frees them stays for good.
std::atomic<c10::DeleterFnPtr> free_default{nullptr};

/// For blocks of LibTorch's default allocator, which come from malloc.
void free_counted(void* block) {
  if (block == nullptr) return;
  held.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(block)), std::memory_order_relaxed);
  free_default.load(std::memory_order_relaxed)(block);
}

/// A block of an allocator of the program's own.
struct Block {
  c10::DataPtr data;
  std::int64_t bytes;
};
void free_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  held.fetch_sub(block->bytes, std::memory_order_relaxed);
}

// Since LibTorch 2.3 `allocate` may change the allocator, and there is `copy_data`.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define TORCHTAP_ALLOCATE_CONST
#define TORCHTAP_COPY_DATA 1
#else
#define TORCHTAP_ALLOCATE_CONST const
#define TORCHTAP_COPY_DATA 0
#endif

class Counting final : public c10::Allocator {
 public:
  void wrap(c10::Allocator* allocator) noexcept {
    is_default_ = allocator == c10::GetDefaultCPUAllocator() && allocator->raw_deleter() != nullptr;
    if (is_default_) free_default.store(allocator->raw_deleter());
    inner_.store(allocator);
  }

  c10::DataPtr allocate(std::size_t bytes) TORCHTAP_ALLOCATE_CONST override {
    c10::DataPtr data = inner_.load(std::memory_order_relaxed)->allocate(bytes);
    void* const block = data.get();
    if (block == nullptr) return data;
    const at::Device device = data.device();
    if (is_default_ && data.get_context() == block) {
      add(static_cast<std::int64_t>(::malloc_usable_size(block)));
      return {block, data.release_context(), &free_counted, device};
    }
    auto held_block = std::make_unique<Block>(Block{std::move(data), static_cast<std::int64_t>(bytes)});
    add(held_block->bytes);
    return {block, held_block.release(), &free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return is_default_ ? &free_counted : nullptr; }
#if TORCHTAP_COPY_DATA
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_.load(std::memory_order_relaxed)->copy_data(to, from, bytes);
  }
#endif

 private:
  std::atomic<c10::Allocator*> inner_{nullptr};
  bool is_default_ = false;
};

/// Another thread may be inside of it when it is not used any more, so it stays.
Counting& counting() {
  static auto* allocator = new Counting;
  return *allocator;
}

/// Sets LibTorch's allocator with the priority that the present one has, whatever it is: a lower one is
/// ignored, and a higher one would keep the program from setting its own later.
void set_allocator(c10::Allocator* allocator) {
  for (int priority = 0; priority <= std::numeric_limits<std::uint8_t>::max(); ++priority) {
    c10::SetCPUAllocator(allocator, static_cast<std::uint8_t>(priority));
    if (c10::GetCPUAllocator() == allocator) return;
  }
}

/// Memory that LibTorch reports for devices other than the CPU.
struct Reporter final : c10::MemoryReportingInfoBase {
  using Total = std::conditional_t<(TORCH_VERSION_MAJOR >= 2), std::size_t, std::int64_t>;
  void reportMemoryUsage(void* /*block*/, std::int64_t bytes, Total /*allocated*/, Total /*reserved*/,
                         c10::Device device) override {
    if (!device.is_cpu()) add(bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

}  // namespace

std::unique_ptr<HeapWatch> HeapWatch::begin(bool other_devices) {
  if (watched.exchange(true)) return nullptr;
  return std::unique_ptr<HeapWatch>(new HeapWatch(other_devices));
}

HeapWatch::HeapWatch(bool other_devices) : before_(c10::GetCPUAllocator()) {
  counting().wrap(before_);
  held.store(0);
  peak.store(0);
  allocations.store(0);
  set_allocator(&counting());
  if (!other_devices) return;
  displaced_ = c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) != nullptr;
  if (!displaced_) reports_.emplace(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>());
}

HeapWatch::~HeapWatch() {
  reports_.reset();
  // Somebody may have set another allocator, which stays.
  if (c10::GetCPUAllocator() == &counting()) set_allocator(before_);
  watched.store(false);
}

HeapWatch::Paused::Paused() noexcept : before_(std::exchange(paused, true)) {}

HeapWatch::Paused::~Paused() {
  paused = before_;
}

HeapState HeapWatch::read() {
  HeapState state;
  state.held = held.load(std::memory_order_relaxed);
  state.peak = std::max(state.held, peak.exchange(state.held, std::memory_order_relaxed));
  state.allocations = allocations.load(std::memory_order_relaxed);
  return state;
}

}  // namespace torchtap::views::report::detail
