#pragma once

/// Hooks around calls that are no `forward` of a C++ object: `HookPoint` is where they are attached, `Call`
/// runs them.

#include <torchtap/hooks/detail/call.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>

namespace torchtap::hooks::extend {

using detail::Call;
using detail::CallTensors;
using detail::Gate;
using detail::HookPoint;
using detail::is_idle;
using detail::NodePtr;

}  // namespace torchtap::hooks::extend
