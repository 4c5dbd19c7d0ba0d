// Detaches, transforms and converts tensors.
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/recorders/detail/prepare.hpp>

namespace torchtap::recorders::detail {

Prepare::Prepare(const Slots& slots)
    : slots_(slots),
      as_it_is_(slots.options->transform() == nullptr && !slots.options->device().has_value() &&
                !slots.options->dtype().has_value()) {}

at::Tensor Prepare::operator()(const at::Tensor& tensor) const {
  const RecorderOptions& how = *slots_.options;
  if (!tensor.defined()) return tensor;
  const base::RecordingMode quiet;
  at::Tensor sample = tensor.requires_grad() ? tensor.detach() : tensor;
  if (how.transform() != nullptr) {
    sample = how.transform()(sample);
    TORCH_CHECK_VALUE(sample.defined(), slots_.describe(),
                      ": the transform returned an undefined tensor for one of shape ", tensor.sizes(),
                      "; it must return what is to be recorded.");
  }
  if (how.device().has_value() || how.dtype().has_value()) {
    TORCH_CHECK_TYPE(
        !sample.is_complex() || c10::isComplexType(how.dtype().value_or(sample.scalar_type())),
        slots_.describe(), ": the sample is complex (", sample.scalar_type(), "), and .dtype(",
        how.dtype().value_or(sample.scalar_type()),
        ") would drop its imaginary part. Ask for a complex dtype, or for the part that you want: "
        "RecorderOptions().transform([](const at::Tensor& x) { return at::real(x); }), at::abs, "
        "or at::view_as_real.");
    sample = sample.to(how.device().value_or(sample.device()), how.dtype().value_or(sample.scalar_type()));
  }
  return sample;
}

}  // namespace torchtap::recorders::detail
