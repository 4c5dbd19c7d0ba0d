#include <torchtap/cuda/detail/kernels.hpp>
#include <torchtap/cuda/fused_kernels.hpp>
#include <torchtap/reductions/extend/device_kernels.hpp>

namespace torchtap::cuda {

void enable_fused_kernels() {
  reductions::extend::install(&detail::kernels());
}

void disable_fused_kernels() noexcept {
  reductions::extend::install(nullptr);
}

bool fused_kernels_enabled() noexcept {
  return reductions::extend::installed() != nullptr;
}

}  // namespace torchtap::cuda
