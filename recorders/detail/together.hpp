#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <memory>

#include <torchtap/core/sink.hpp>

namespace torchtap::recorders::detail {

/// A sample and the reduction that it goes to.
struct Update {
  std::unique_ptr<core::Sink>* sink;
  const at::Tensor* sample;
};

/// Folds each sample into its sink, all of them or none: what throws leaves every sink as it was.
///
/// Sinks that can tell are asked first. Of those that cannot, one is updated in place and the others as
/// copies, as `reductions::Series` does.
void update_together(c10::ArrayRef<Update> updates);

}  // namespace torchtap::recorders::detail
