#pragma once

/// Copies of large tensors that are not read soon.

#include <cstddef>

#include <torchtap/base/api.hpp>

namespace torchtap::views::frames {

/// Copies as `memcpy` does. If there is much to copy and the processor can, it bypasses the caches: the copy
/// is read by another process, or much later than the caches would keep it, and the source stays in them.
/// Every thread sees the copy before it sees later writes of the calling thread.
TORCHTAP_API void bulk_copy(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace torchtap::views::frames
