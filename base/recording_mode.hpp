#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <torchtap/base/operations_key.hpp>

namespace torchtap::base {

/// While it lives, this thread's tensor operations build no graph, are not autocast, are not seen by scopes
/// of operations/, and make tensors that may be changed in place at any later time (unlike tensors made in
/// inference mode), whatever mode the model runs in.
struct RecordingMode {
  c10::InferenceMode normal{false};
  c10::NoGradGuard no_grad;  // after `normal`, which enables gradients
  c10::impl::ExcludeDispatchKeyGuard excluded{c10::autocast_dispatch_keyset.add(operations_key)};
};

}  // namespace torchtap::base
