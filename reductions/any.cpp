// Checks samples of a reduction whose type is known only when the program runs.

#include <torchtap/base/error.hpp>
#include <torchtap/reductions/any.hpp>

namespace torchtap::reductions {

Any::Any(std::unique_ptr<core::Sink> sink) : sink_(std::move(sink)) {
  TORCH_CHECK_VALUE(sink_ != nullptr, "reductions::Any: expected a reduction, got a null pointer.");
}

void Any::check(const at::Tensor& sample) const {
  if (!sink_->check(sample)) sink_->clone()->update(sample);
}

}  // namespace torchtap::reductions
