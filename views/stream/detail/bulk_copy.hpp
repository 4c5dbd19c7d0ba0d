#pragma once

// Copies of large tensors into the ring.

#include <cstddef>

namespace torchtap::views::stream::detail {

/// Copies as `memcpy` does, past the caches where the processor can: what is written here is read by another
/// process, much later than the caches would keep it, and the tensor that is read stays in them. What the
/// calling thread writes afterwards is seen after it by all.
void bulk_copy(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace torchtap::views::stream::detail
