#pragma once

#include <torchtap/core/api.hpp>

namespace torchtap::hooks::detail {

/// The number of hooked calls that this thread is in. TorchScript's count only until their inputs were seen.
TORCHTAP_API int call_depth() noexcept;

}  // namespace torchtap::hooks::detail
