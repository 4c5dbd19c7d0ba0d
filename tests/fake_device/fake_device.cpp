// The devices: allocator, operations, streams and events.
#include "tests/fake_device/fake_device.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/torch.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include <ATen/detail/PrivateUse1HooksInterface.h>
#else
#include <ATen/detail/CUDAHooksInterface.h>
#endif

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>

namespace torchtap_test::fake {
namespace {

struct Work {
  std::mutex running;  // one thread at a time is the device
  std::deque<std::function<void()>> jobs;
  std::int64_t submitted = 0;
  std::int64_t done = 0;
  std::uint64_t capture = 0;  // 0: none
  Graph graph;
};

struct State {
  std::mutex mutex;
  Work work[2];
  std::atomic<std::int64_t> synchronizations{0}, events{0}, blocked{0}, recorded{0}, wrong_device{0},
      bytes{0}, pinned{0};
  std::atomic<Failing> failing{Failing::nothing};
};

State& state() {
  static State* const made = new State;
  return *made;
}

thread_local c10::DeviceIndex current = 0;
thread_local std::int64_t current_stream = 0;

void synchronize(c10::DeviceIndex index) {
  TORCH_CHECK(capture(index) == 0, "operation not permitted when stream is capturing");
  ++state().synchronizations;
  run(index);
}

// Memory.

constexpr std::size_t kSize = 64;  // in front of the memory: how much it is, and of which device
std::atomic<bool> in_order{false};

/// Overwrites what is freed, so that a copy that comes too late is wrong.
void give_back_now(void* memory) {
  char* const whole = static_cast<char*>(memory) - kSize;
  std::int64_t size = 0;
  std::memcpy(&size, whole, sizeof size);
  std::memset(memory, 0xDD, static_cast<std::size_t>(size));
  state().bytes -= size;
  std::free(whole);
}

void give_back(void* memory) {
  if (memory == nullptr) return;
  if (!in_order) return give_back_now(memory);
  std::int64_t index = 0;
  std::memcpy(&index, static_cast<char*>(memory) - kSize + sizeof index, sizeof index);
  if (capture(static_cast<int>(index)) == 0)
    submit(static_cast<int>(index), [memory] { give_back_now(memory); });
}

void* take(std::size_t size) {
  char* const whole = static_cast<char*>(std::malloc(kSize + size));
  if (whole == nullptr) throw std::bad_alloc();
  const auto noted = static_cast<std::int64_t>(size);
  const std::int64_t index = current;
  std::memcpy(whole, &noted, sizeof noted);
  std::memcpy(whole + sizeof noted, &index, sizeof index);
  state().bytes += noted;
  return whole + kSize;
}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define TORCHTAP_TEST_ALLOCATE                                                   \
  void copy_data(void* to, const void* from, std::size_t count) const override { \
    default_copy_data(to, from, count);                                          \
  }                                                                              \
  c10::DataPtr allocate(std::size_t size) override
#else
#define TORCHTAP_TEST_ALLOCATE c10::DataPtr allocate(std::size_t size) const override
#endif

struct DeviceMemory final : c10::Allocator {
  TORCHTAP_TEST_ALLOCATE {
    void* const memory = size == 0 ? nullptr : take(size);
    return {memory, memory, &give_back, device(current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
};

/// Holds nothing when it is new, so that bytes which no copy has written are seen.
struct PinnedMemory final : c10::Allocator {
  TORCHTAP_TEST_ALLOCATE {
    TORCH_CHECK(pins(), "this device cannot pin memory");
    ++state().pinned;
    void* const memory = size == 0 ? nullptr : std::malloc(size);
    if (memory != nullptr) std::memset(memory, 0xEE, size);
    return {memory, memory, &std::free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
};

DeviceMemory device_memory;
PinnedMemory pinned_memory;

#if TORCH_VERSION_MAJOR >= 2
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const { return true; }
  bool isAvailable() const { return true; }
  bool isPinnedPtr(const void*) const override { return false; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};
const bool hooked = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::register_privateuse1_backend(
      "fake");  // newer LibTorchs ask only a backend that has a name for pinned memory
  return true;
}();
#else
// LibTorch 1.13 asks CUDA alone for pinned memory.
struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
};
#endif

// Operations.

/// The tensor's memory as a CPU tensor, which does not own it: a device's job has addresses, too.
at::Tensor memory_of(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

/// A graph's jobs have addresses, too; its memory stays.
void keep_for_graph(std::initializer_list<at::Tensor> tensors, c10::DeviceIndex index) {
  const std::lock_guard lock(state().mutex);
  Work& work = state().work[index];
  if (work.capture != 0) work.graph.memory.insert(work.graph.memory.end(), tensors);
}

at::Tensor empty(at::IntArrayRef sizes, c10::optional<at::ScalarType> dtype, c10::optional<at::Layout>,
                 c10::optional<at::Device> where, c10::optional<bool>,
                 c10::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(where.value_or(device(current)));
  return at::detail::empty_generic(sizes, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, c10::optional<at::ScalarType> dtype,
                         c10::optional<at::Layout>, c10::optional<at::Device> where, c10::optional<bool>) {
  const c10::DeviceGuard guard(where.value_or(device(current)));
  return at::detail::empty_strided_generic(sizes, strides, &device_memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           dtype.value_or(at::kFloat));
}

at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  TORCH_CHECK(state().failing != Failing::copies || !to.is_cpu(), "copies fail here");
  const c10::DeviceIndex index = to.is_cpu() ? from.device().index() : to.device().index();
  if (to.numel() == 0) return to;
  keep_for_graph({to, from}, index);
  // Memory is freed in the order of the stream's work: the tensors of an operation last until it is done.
  std::vector<at::Tensor> kept;
  if (!from.is_cpu() && !to.is_cpu()) kept = {to, from};
  submit(index, [a = memory_of(to), b = memory_of(from), kept]() mutable { a.copy_(b); });
  const bool waits = from.is_cpu() || (to.is_cpu() && !non_blocking);
  if (waits) synchronize(index);
  return to;
}

/// The result of an operation that the CPU did, which may have another shape than the tensor that is to hold
/// it.
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::Tensor target = to;
  if (target.sizes() != from.sizes()) {
    c10::TensorImpl* const resized = target.unsafeGetTensorImpl();
    resized->set_storage_keep_dtype(at::empty(from.sizes(), target.options()).storage());
    resized->set_storage_offset(0);
    resized->set_sizes_contiguous(from.sizes());
  }
  return copy_(target, from, false);
}

at::Tensor& fill_(at::Tensor& tensor, const at::Scalar& value) {
  const c10::DeviceIndex index = tensor.device().index();
  keep_for_graph({tensor}, index);
  submit(index, [memory = memory_of(tensor), value, kept = tensor]() mutable { memory.fill_(value); });
  return tensor;
}

at::Tensor& zero_(at::Tensor& tensor) {
  return fake::fill_(tensor, at::Scalar(0));
}

at::Tensor view(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return at::native::view(tensor, sizes);
}

at::Tensor as_strided(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                      c10::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(tensor, sizes, strides, offset);
}

at::Tensor reshape_alias(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::native::as_strided_tensorimpl(tensor, sizes, strides, {});
}

/// LibTorch's fallback leaves lists of optional tensors where they are.
at::Tensor index(const at::Tensor& tensor, const c10::List<c10::optional<at::Tensor>>& indices) {
  c10::List<c10::optional<at::Tensor>> moved;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const c10::optional<at::Tensor> one = indices.get(i);
    moved.push_back(one.has_value() && one->defined() ? c10::optional<at::Tensor>(one->cpu()) : one);
  }
  return at::index(tensor.cpu(), moved).to(tensor.device());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy_);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("fill_.Scalar", &fill_);
  m.impl("zero_", &zero_);
  m.impl("view", &view);
  m.impl("as_strided", &as_strided);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("index.Tensor", &index);
}

void on_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}

// Streams and events.

struct FakeEvent {
  c10::DeviceIndex index;
  std::int64_t done_after;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device to) const override {
    return device(std::exchange(current, to.index()));
  }
  c10::Device getDevice() const override { return device(current); }
  void setDevice(c10::Device to) const override { current = to.index(); }
  void uncheckedSetDevice(c10::Device to) const noexcept override { current = to.index(); }
  c10::Stream getStream(c10::Device of) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, of.has_index() ? of : device(current), current_stream);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), std::exchange(current_stream, stream.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event == nullptr) return;
    delete static_cast<FakeEvent*>(event);
    --state().events;
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    TORCH_CHECK(state().failing != Failing::events, "this device has no events");
    if (*event == nullptr) {
      *event = new FakeEvent{};
      ++state().events;
    }
    const std::lock_guard lock(state().mutex);
    *static_cast<FakeEvent*>(*event) = {stream.device().index(),
                                        state().work[stream.device().index()].submitted};
  }
  void block(void*, const c10::Stream&) const override { ++state().blocked; }
  bool queryEvent(void* event) const override {
    TORCH_CHECK(state().failing != Failing::questions, "the device is lost");
    const auto& asked = *static_cast<FakeEvent*>(event);
    if (asked.index != current) ++state().wrong_device;
    const std::lock_guard lock(state().mutex);
    return state().work[asked.index].done >= asked.done_after;
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override { synchronize(stream.device().index()); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override { ++state().recorded; }
};

const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::PrivateUse1, new Guard);

}  // namespace

at::Tensor on_device(const at::Tensor& tensor, int index) {
  return tensor.to(device(index));
}

void submit(int index, std::function<void()> job) {
  const std::lock_guard lock(state().mutex);
  Work& work = state().work[index];
  if (work.capture != 0) {
    work.graph.jobs.push_back(std::move(job));
    return;
  }
  work.jobs.push_back(std::move(job));
  ++work.submitted;
}

void begin_capture(int index) {
  static std::uint64_t captures = 0;
  const std::lock_guard lock(state().mutex);
  state().work[index].capture = ++captures;
}

Graph end_capture(int index) {
  const std::lock_guard lock(state().mutex);
  state().work[index].capture = 0;
  return std::exchange(state().work[index].graph, {});
}

std::uint64_t capture(int index) {
  const std::lock_guard lock(state().mutex);
  return state().work[index].capture;
}

void replay(const Graph& graph, int index) {
  for (const auto& job : graph.jobs) submit(index, job);
}

OnStream::OnStream(std::int64_t stream) : former_(std::exchange(current_stream, stream)) {}

OnStream::~OnStream() {
  current_stream = former_;
}

void give_back_in_order() {
  in_order = true;
}

void run(int index, std::int64_t count) {
  Work& work = state().work[index];
  const std::lock_guard running(work.running);
  for (; count > 0; --count) {
    std::function<void()> job;
    {
      const std::lock_guard lock(state().mutex);
      if (work.jobs.empty()) return;
      job = std::move(work.jobs.front());
      work.jobs.pop_front();
    }
    job();
    const std::lock_guard lock(state().mutex);
    ++work.done;
  }
}

std::int64_t waiting(int index) {
  const std::lock_guard lock(state().mutex);
  return static_cast<std::int64_t>(state().work[index].jobs.size());
}

Counters counters() {
  State& now = state();
  return {now.synchronizations, now.events, now.blocked, now.recorded,
          now.wrong_device,     now.bytes,  now.pinned};
}

void fail(Failing what) {
  state().failing = what;
}

bool pins() {
  return std::getenv("TORCHTAP_TEST_UNPINNED") == nullptr;
}

}  // namespace torchtap_test::fake

#if TORCH_VERSION_MAJOR < 2
namespace at {
using CUDAHooks = torchtap_test::fake::Hooks;  // LibTorch looks for this name
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
#endif
