// Answers for samples that neither kernels nor loops read, by operations of ATen.

#include <ATen/Functions.h>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/reductions/fast/small.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions {

Summary Pass::total() const {
  if (const auto answer = parts_.requests.total()) return *answer;
  const at::Tensor& sample = this->sample();
  if (sample.defined() && !base::is_strided(sample)) {
    core::unfit<c10::TypeError>(c10::str("reductions::Pass::total: expected a strided tensor, got ",
                                         base::instead_of_strided(sample), "."));
  }
  TORCH_CHECK_TYPE(
      sample.defined() && !sample.is_quantized() && !sample.is_complex(),
      "reductions::Pass::total: expected a strided tensor of real numbers, got ",
      sample.defined() ? c10::str(sample.toString(), " of shape ", sample.sizes()) : "an undefined one",
      "; convert it first.");
  const base::RecordingMode quiet;
  at::Tensor x = sample.detach().to(at::kCPU, at::kDouble).contiguous();
  if (x.is_neg() || x._is_zerotensor()) x = at::empty(x.sizes(), x.options()).copy_(x);
  return detail::summarize({at::kDouble, static_cast<const char*>(x.data_ptr()), x.numel()}, {true, true});
}

}  // namespace torchtap::reductions
