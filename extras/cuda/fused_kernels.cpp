#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <mutex>

#include <torchtap/cuda/detail/driver.hpp>
#include <torchtap/cuda/detail/fold_on_device.hpp>
#include <torchtap/cuda/detail/kernels.hpp>
#include <torchtap/cuda/detail/proof.hpp>
#include <torchtap/cuda/fused_kernels.hpp>
#include <torchtap/reductions/extend/device_kernels.hpp>

namespace torchtap::cuda {
namespace {

/// The kernels for this process. The first call loads NVRTC and compiles for the thread's current device.
reductions::extend::DeviceKernels& kernels() {
  TORCH_CHECK(c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA),
              "torchtap::cuda::enable_fused_kernels: the program's LibTorch has no CUDA; link one that has "
              "(torch_cuda, which linkers leave out with --as-needed).");
  const detail::Driver& driver = detail::Driver::instance();  // says what is missing, as LibTorch does not
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  TORCH_CHECK(guard.deviceCount() > 0,
              "torchtap::cuda::enable_fused_kernels: there is no CUDA device that this LibTorch can use. "
              "Reductions are ATen's operations until then.");
  static auto* const made =
      detail::make_kernels(driver, guard.getDevice()).release();  // for hooks that run at the program's end
  return *made;
}

void use(reductions::extend::DeviceKernels* kernels) noexcept {
  reductions::extend::install(kernels);
  recorders::extend::install(kernels == nullptr ? nullptr : &detail::on_devices);
}

}  // namespace

void enable_fused_kernels() {
  static std::mutex mutex;
  static bool right = false;  // on the device that was the thread's then
  reductions::extend::DeviceKernels& all = kernels();
  const std::lock_guard lock(mutex);
  use(&all);
  if (right) return;
  try {
    detail::expect_right_numbers(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice());
    right = true;
  } catch (...) {
    use(nullptr);
    throw;
  }
}

void disable_fused_kernels() noexcept {
  use(nullptr);
}

bool fused_kernels_enabled() noexcept {
  return reductions::extend::installed() != nullptr;
}

}  // namespace torchtap::cuda
