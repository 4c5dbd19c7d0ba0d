#pragma once

// Tells whether a stream is capturing a CUDA graph.

#include <c10/core/Stream.h>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// Whether a stream keeps its work for later, as a CUDA graph, instead of doing it.
TORCHTAP_API bool is_capturing(const c10::Stream& stream);
/// Whether the current stream of the device does.
TORCHTAP_API bool is_capturing(const c10::Device& device);

using Capturing = bool (*)(const c10::Device& device);
/// For tests, where there is no device: what is asked in place of it; null for nothing. Returns what it was.
TORCHTAP_API Capturing set_capturing(Capturing asked) noexcept;

}  // namespace torchtap::base
