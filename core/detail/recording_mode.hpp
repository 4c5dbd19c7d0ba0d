#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torchtap::core::detail {

/// While an object of this class lives, this thread's tensor operations build no graph, are not recast by
/// autocast, and make tensors that may be changed in place at any later time (tensors made in inference mode
/// may not), whichever mode the model runs in.
struct RecordingMode {
  c10::InferenceMode normal{false};
  c10::NoGradGuard no_grad;  // after `normal`, which turns gradients on
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

}  // namespace torchtap::core::detail
