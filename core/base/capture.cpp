// Asks LibTorch, or CUDA's runtime where LibTorch is older, whether a stream captures a graph.

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <atomic>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>

namespace torchtap::base {
namespace {

std::atomic<Capturing> stand_in{nullptr};

/// Newer LibTorchs know.
template <class Guard>
auto captures(const Guard& guard, const c10::Stream& stream, int)
    -> decltype(guard.isStreamCapturing(stream)) {
  return guard.isStreamCapturing(stream);
}
/// For other guards, CUDA's runtime is asked. It is found in the process, because the library is not linked
/// with it.
template <class Guard>
bool captures(const Guard&, const c10::Stream& stream, long) {
  using Handle = void* (*)(const c10::Stream*);  // of a CUDAStream, which has a Stream and nothing else
  using Status = int (*)(void* handle, int* status);
  static const auto handle =
      reinterpret_cast<Handle>(::dlsym(RTLD_DEFAULT, "_ZNK3c104cuda10CUDAStream6streamEv"));
  static const auto status = reinterpret_cast<Status>(::dlsym(RTLD_DEFAULT, "cudaStreamIsCapturing"));
  if (stream.device_type() != c10::kCUDA || handle == nullptr || status == nullptr) return false;
  int found = 0;
  return status(handle(&stream), &found) == 0 && found != 0;
}

}  // namespace

bool is_capturing(const c10::Stream& stream) {
  if (const Capturing asked = stand_in.load(std::memory_order_relaxed)) return asked(stream.device());
  if (!c10::impl::hasDeviceGuardImpl(stream.device_type())) return false;
  return captures(c10::impl::VirtualGuardImpl(stream.device_type()), stream, 0);
}

bool is_capturing(const c10::Device& device) {
  if (const Capturing asked = stand_in.load(std::memory_order_relaxed)) return asked(device);
  if (device.is_cpu() || !c10::impl::hasDeviceGuardImpl(device.type())) return false;
  return is_capturing(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

void expect_no_capture(const c10::Device& device, const char* who) {
  TORCH_CHECK_NOT_IMPLEMENTED(!is_capturing(device), who, ": a stream of ", device,
                              " captures a graph, in which no tensor can be read; it was not looked at.");
}

Capturing set_capturing(Capturing asked) noexcept {
  return stand_in.exchange(asked);
}

}  // namespace torchtap::base
