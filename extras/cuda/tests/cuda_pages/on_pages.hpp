#pragma once

#include <torch/torch.h>

#include <memory>

#include <torchtap/base/capture.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/cuda/detail/fold_on_device.hpp>
#include <torchtap/cuda/detail/kernels.hpp>
#include <torchtap/hooks/hooked.hpp>
#include <torchtap/reductions/extend/device_kernels.hpp>

#include "fake_launcher.hpp"
#include "tests/fake_device/fake_device.hpp"
#include "tests/support.hpp"

namespace torchtap_test {

/// Fused kernels for the fake devices, while it lives.
class OnPages {
 public:
  OnPages() {
    fake::give_back_in_order();
    static auto* const kernels =
        torchtap::cuda::detail::make_kernels(fake::launcher(), fake::device()).release();
    torchtap::reductions::extend::install(kernels);
    torchtap::recorders::extend::install(&torchtap::cuda::detail::on_devices);
    torchtap::base::set_capturing(
        [](const c10::Device& device) { return !device.is_cpu() && fake::capture(device.index()) != 0; });
  }
  OnPages(const OnPages&) = delete;
  OnPages& operator=(const OnPages&) = delete;
  ~OnPages() {
    torchtap::reductions::extend::install(nullptr);
    torchtap::recorders::extend::install(nullptr);
    torchtap::base::set_capturing(nullptr);
  }
};

/// Results of the fake device beside those of the same samples in float64 on the CPU.
inline void check_same(const torchtap::core::Results& got, const torchtap::core::Results& want,
                       at::Device device = fake::device()) {
  BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
  for (const auto& [name, tensor] : want) {
    if (!got.contains(name)) continue;
    BOOST_TEST_CONTEXT("result " << name) {
      BOOST_TEST(got.at(name).device() == device);
      const at::Tensor here = got.at(name).cpu();
      const bool exact = !here.is_floating_point() || name.find("min.") == 0 || name.find("max.") == 0;
      const double rtol = exact ? 0 : here.scalar_type() == at::kDouble ? 1e-10 : 1e-6;
      BOOST_TEST(close(here, tensor.to(here.scalar_type()), rtol, exact ? 0 : 1e-9));
    }
  }
}

/// Returns its input, in the same memory, so that a test may change what a module gives.
struct SameImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCHTAP_MODULE(Same);

/// Gives its input, and twice as much.
struct PairImpl : torch::nn::Module {
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    return {x, fake::on_device(x.cpu() * 2)};
  }
};
TORCHTAP_MODULE(Pair);

}  // namespace torchtap_test
