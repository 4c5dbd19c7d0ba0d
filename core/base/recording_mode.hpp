#pragma once

// The mode in which torchtap's own operations run.

#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torchtap::base {

/// The dispatch key by which operations/ sees operations. No kernel and no fallback of LibTorch's own is
/// registered for it, from 1.13 to 2.14.
inline constexpr c10::DispatchKey operations_key = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// While it lives, this thread's tensor operations build no graph, are not autocast, are not seen by scopes
/// of operations/, and make tensors that may be changed in place at any later time (unlike tensors made in
/// inference mode), whatever mode the model runs in.
struct RecordingMode {
  c10::InferenceMode normal{false};
  c10::NoGradGuard no_grad;  // after `normal`, which enables gradients
  c10::impl::ExcludeDispatchKeyGuard excluded{c10::autocast_dispatch_keyset.add(operations_key)};
};

}  // namespace torchtap::base
