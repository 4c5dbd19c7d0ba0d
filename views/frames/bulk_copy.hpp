#pragma once

/// Copies of large tensors that are not read soon.

#include <cstddef>

#include <torchtap/base/api.hpp>

namespace torchtap::views::frames {

/// Copies as `memcpy` does, past the caches where the processor can and there is much to copy: what is
/// written here is read much later than the caches would keep it, or by another process, and the tensor that
/// is read stays in them. What the calling thread writes afterwards is seen after it by all.
TORCHTAP_API void bulk_copy(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace torchtap::views::frames
