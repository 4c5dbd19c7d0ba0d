#pragma once

/// Memory for what is kept long, beside that of malloc.

#include <c10/core/Storage.h>

#include <cstddef>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// `bytes` bytes on the CPU, not initialised, at an address divisible by 64. If they are many, their memory
/// is for the next such storage when this one is destroyed, so that nobody waits for new pages again: of what
/// is free, 256 MB stay with the process, more stay unless the system needs them (`MADV_FREE`), and beyond
/// 512 MB the rest goes back. A few bytes, and many where the system has none, come from LibTorch's
/// allocator, which throws what it throws. Thread-safe.
TORCHTAP_API c10::Storage reused_storage(std::size_t bytes);

}  // namespace torchtap::base
