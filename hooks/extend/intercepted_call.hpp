#pragma once

/// Runs hooks around a `forward` that is intercepted on its way, and so knows the module's address alone.
/// Include LibTorch's cloneable.h before it.

#include <torchtap/hooks/detail/hooked.hpp>
#include <torchtap/hooks/detail/interposed.hpp>

namespace torchtap::hooks::extend {

using detail::Call;
using detail::can_be_copied;
using detail::find_interposed;
using detail::FirstTypes;
using detail::is_callable_v;
using detail::run_hooked;
using detail::tensors_from_v;

}  // namespace torchtap::hooks::extend
