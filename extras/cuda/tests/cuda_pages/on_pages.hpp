#pragma once

#include <torch/torch.h>

#include <memory>

#include <torchtap/base/capture.hpp>
#include <torchtap/cuda/detail/kernels.hpp>
#include <torchtap/hooks/hooked.hpp>
#include <torchtap/reductions/extend/device_kernels.hpp>

#include "fake_launcher.hpp"
#include "tests/fake_device/fake_device.hpp"

namespace torchtap_test {

/// Fused kernels for the fake devices, while it lives.
class OnPages {
 public:
  OnPages() {
    fake::give_back_in_order();
    static auto* const kernels =
        torchtap::cuda::detail::make_kernels(fake::launcher(), fake::device()).release();
    torchtap::reductions::extend::install(kernels);
    torchtap::base::set_capturing(
        [](const c10::Device& device) { return !device.is_cpu() && fake::capture(device.index()) != 0; });
  }
  OnPages(const OnPages&) = delete;
  OnPages& operator=(const OnPages&) = delete;
  ~OnPages() {
    torchtap::reductions::extend::install(nullptr);
    torchtap::base::set_capturing(nullptr);
  }
};

/// Returns its input, in the same memory, so that a test may change what a module gives.
struct SameImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCHTAP_MODULE(Same);

}  // namespace torchtap_test
