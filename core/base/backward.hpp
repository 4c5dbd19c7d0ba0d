#pragma once

// Tells whether this thread runs a backward.

namespace torchtap::base {

/// Whether this thread runs a backward, which may run parts of a forward again (checkpointing).
bool in_backward() noexcept;

}  // namespace torchtap::base
