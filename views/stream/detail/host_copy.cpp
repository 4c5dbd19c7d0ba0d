// Copies tensors of devices without waiting for them, through what all of LibTorch's backends have in common.
#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/stream/detail/host_copy.hpp>

namespace torchtap::views::stream::detail {
namespace {

using c10::impl::VirtualGuardImpl;

/// The state of each type of device; 0 if it is not known yet.
enum class Known : signed char { nothing, yes, no };
using KnownOfDevices = std::array<std::atomic<Known>, c10::COMPILE_TIME_MAX_DEVICE_TYPES>;

std::atomic<Known>& of(KnownOfDevices& known, c10::DeviceType type) noexcept {
  return known[static_cast<std::size_t>(type)];
}

/// Throws unless the device has events. Asked before the first copy: without events nobody could know when a
/// copy is done.
void check_events(const VirtualGuardImpl& guard, c10::Device device) {
  static KnownOfDevices known{};
  if (of(known, device.type()).load(std::memory_order_relaxed) == Known::yes) return;
  c10::Event probe(device.type());
  probe.record(guard.getStream(device));
  of(known, device.type()).store(Known::yes, std::memory_order_relaxed);
}

/// Memory on the CPU for the bytes of `tensor`. It is pinned where the backend can pin; a backend that could
/// not the first time is not asked again.
at::Tensor host_memory(const at::Tensor& tensor) {
  static KnownOfDevices known{};
  std::atomic<Known>& pins = of(known, tensor.device().type());
  const at::TensorOptions options(tensor.scalar_type());
  if (tensor.is_cpu() || pins.load(std::memory_order_relaxed) == Known::no)
    return at::empty(tensor.sizes(), options);
  try {
    at::Tensor pinned = at::empty(tensor.sizes(), options.pinned_memory(true));
    pins.store(Known::yes, std::memory_order_relaxed);
    return pinned;
  } catch (const c10::Error&) {
    if (pins.load(std::memory_order_relaxed) == Known::yes) throw;  // there is no more of it
  }
  pins.store(Known::no, std::memory_order_relaxed);
  return at::empty(tensor.sizes(), options);
}

}  // namespace

HostCopy::HostCopy(const at::Tensor& tensor) {
  const base::RecordingMode quiet;
  const at::Tensor plain = tensor.detach();
  if (plain.is_cpu()) {
    to_ = host_memory(plain);
    to_.copy_(plain.resolve_conj().resolve_neg());
    return;
  }
  const c10::DeviceGuard current(plain.device());
  begin(plain);
}

void HostCopy::begin(const at::Tensor& tensor) {
  const c10::Device device = tensor.device();
  const VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  TORCH_CHECK(!base::is_capturing(stream), "the stream of ", device, " is being captured into a graph");
  check_events(guard, device);
  from_ = tensor.resolve_conj().resolve_neg().contiguous();
  to_ = host_memory(from_);
  event_ = std::make_unique<c10::Event>(device.type());
  // For memory that the program takes back from the tensor while others still hold it (`storage.resize_`).
  guard.recordDataPtrOnStream(from_.storage().data_ptr(), stream);
  try {
    to_.copy_(from_, /*non_blocking=*/true);
    event_->record(stream);
  } catch (...) {
    give_back(guard, stream);
    throw;
  }
}

/// After an error the copy may or may not have begun: waits, so that the memory can be freed.
void HostCopy::give_back(const c10::impl::VirtualGuardImpl& guard, const c10::Stream& stream) {
  try {
    guard.synchronizeStream(stream);
  } catch (const std::exception&) {
    abandon();
  }
}

bool HostCopy::done() const {
  if (event_ == nullptr) return true;
  // So that the question does not wake up the device that new threads begin with.
  thread_local std::optional<c10::Device> current;
  const c10::Device device = from_.device();
  if (!current.has_value() || *current != device) {
    VirtualGuardImpl(device.type()).setDevice(device);
    current = device;
  }
  return event_->query();
}

void HostCopy::abandon() {
  struct Kept {
    std::mutex mutex;
    std::vector<std::pair<at::Tensor, at::Tensor>> all;
  };
  static Kept* const kept = new Kept;
  const std::lock_guard lock(kept->mutex);
  kept->all.emplace_back(from_, to_);
}

}  // namespace torchtap::views::stream::detail
