#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torchtap::core {

/// While one lives, this thread's tensor operations do not depend on the modes that the model happens to run
/// in: they build no graph, make tensors that may be changed in place at any later time (those made in
/// inference mode may not), and are not recast by autocast.
struct Quiet {
  c10::InferenceMode normal{false};
  c10::NoGradGuard no_grad;  // after `normal`, which turns gradients on
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

}  // namespace torchtap::core
