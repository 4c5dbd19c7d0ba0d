#pragma once

/// Hooks around calls that are no `forward` of a C++ object: `HookPoint` is where they are attached, `Call`
/// runs them.

#include <torchtap/hooks/detail/call.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>
#include <torchtap/hooks/detail/one_side.hpp>

namespace torchtap::hooks::extend {

using detail::Call;
using detail::CallTensors;
using detail::Gate;
using detail::HookPoint;
using detail::is_idle;
using detail::NodePtr;
using detail::OneSide;

}  // namespace torchtap::hooks::extend
