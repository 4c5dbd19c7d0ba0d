#include <torchtap/cuda/detail/kernels.hpp>
#include <torchtap/cuda/fused_kernels.hpp>
#include <torchtap/reductions/detail/device_kernels.hpp>

namespace torchtap::cuda {

void enable_fused_kernels() {
  reductions::detail::install(&detail::kernels());
}

void disable_fused_kernels() noexcept {
  reductions::detail::install(nullptr);
}

bool fused_kernels_enabled() noexcept {
  return reductions::detail::installed() != nullptr;
}

}  // namespace torchtap::cuda
