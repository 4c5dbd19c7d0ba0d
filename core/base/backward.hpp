#pragma once

// Tells whether this thread runs a backward.

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// Whether this thread runs a backward, which may run parts of a forward again (checkpointing).
TORCHTAP_API bool in_backward() noexcept;

}  // namespace torchtap::base
