#pragma once

/// Memory for tensors that are kept long, separate from malloc's.

#include <c10/core/Storage.h>

#include <cstddef>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// `bytes` bytes on the CPU, not initialised, at an address divisible by 64. If they are many, their memory
/// is for the next such storage when this one is destroyed, so that it does not wait for new pages. Of its
/// free memory, 256 MB stay with the process, and the rest is returned to the system. A few bytes, and many
/// where the system has none, come from LibTorch's allocator, with its errors. Thread-safe.
TORCHTAP_API c10::Storage reused_storage(std::size_t bytes);

}  // namespace torchtap::base
