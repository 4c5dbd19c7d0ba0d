#pragma once

// The dispatch key by which operations/ sees operations. Rooms below operations/ switch it off while they
// work.

#include <c10/core/DispatchKey.h>

namespace torchtap::base {

/// No kernel and no fallback of LibTorch's own is registered for it, from 1.13 to 2.14.
inline constexpr c10::DispatchKey operations_key = c10::DispatchKey::TESTING_ONLY_GenericMode;

}  // namespace torchtap::base
