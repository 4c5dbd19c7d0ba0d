// Adds up a few numbers that need no random generator, once on a device and once on the CPU.
#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/cuda/detail/pages.hpp>
#include <torchtap/cuda/detail/proof.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/min.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/series.hpp>

namespace torchtap::cuda::detail {

void expect_right_numbers(c10::Device device) {
  base::expect_no_capture(device, "torchtap::cuda::enable_fused_kernels");
  const base::RecordingMode quiet;
  const c10::DeviceGuard guard(device);
  // Some thousands, so that several blocks have a part of them.
  const at::Tensor numbers =
      at::arange(36000, at::kFloat).mul_(0.37).sin_().mul_(3).add_(1).reshape({900, 40});
  for (const bool all : {true, false}) {
    const auto rows = [all](auto options) { return all ? options.over_all(true) : options.over({0}); };
    auto here = core::make_sink(reductions::Series(reductions::Moments(rows(reductions::MomentsOptions())),
                                                   reductions::Min(rows(reductions::MinOptions())),
                                                   reductions::Max(rows(reductions::MaxOptions())),
                                                   reductions::Count(rows(reductions::CountOptions())))),
         there = here->fresh();
    for (int i = 0; i < 3; ++i) here->update(numbers.to(at::kDouble));
    const auto sum = Pages::of(*there);
    const at::Tensor sample = numbers.to(device);
    TORCH_CHECK(sum != nullptr && sum->accepts(sample, *there, /*captures=*/false),
                "torchtap::cuda::enable_fused_kernels: the kernels do not read float32.");
    Pages::Batch batch;
    for (const int together : {1, 2}) {
      for (int i = 0; i < together; ++i) sum->put(sample, batch, /*captures=*/false);
      batch.launch();
    }
    sum->settle(there.get());
    const core::Results want = here->results(), got = there->results();
    for (const auto& [name, tensor] : want) {
      const bool same = got.contains(name) &&
                        at::allclose(got.at(name).to(at::kDouble), tensor.to(at::kDouble), 1e-6, 1e-9);
      TORCH_CHECK(
          same, "torchtap::cuda::enable_fused_kernels: on ", device, " the kernels compute another ", name,
          " than the CPU (", got.contains(name) ? c10::str(got.at(name).flatten()[0].item<double>()) : "none",
          " in place of ", tensor.flatten()[0].item<double>(),
          "), so they are not used. Reductions are ATen's operations; please report this with the name of "
          "the device.");
    }
  }
}

}  // namespace torchtap::cuda::detail
