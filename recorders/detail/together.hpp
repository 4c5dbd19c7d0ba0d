#pragma once

/// Folds the tensors of one event into their reductions together: all of them or none.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <memory>

#include <torchtap/base/api.hpp>
#include <torchtap/core/sink.hpp>

namespace torchtap::recorders::detail {

/// A sample and the reduction that it goes to.
struct Update {
  std::unique_ptr<core::Sink>* sink;
  const at::Tensor* sample;
};

/// Folds each sample into its sink, all of them or none: if one throws, every sink stays as it was.
///
/// Sinks that can check a sample do so first. Among the others, one is updated in place and the rest as
/// copies, as in `reductions::Series`.
TORCHTAP_API void update_together(c10::ArrayRef<Update> updates);

}  // namespace torchtap::recorders::detail
