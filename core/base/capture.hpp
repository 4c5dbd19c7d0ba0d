#pragma once

// Tells whether a stream is capturing a CUDA graph.

#include <c10/core/Stream.h>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// Whether a stream keeps its work for later, as a CUDA graph, instead of doing it.
TORCHTAP_API bool is_capturing(const c10::Stream& stream);
/// Whether the current stream of the device is being captured into a graph.
TORCHTAP_API bool is_capturing(const c10::Device& device);
/// Throws `c10::NotImplementedError` if it is. For who is about to wait for the device, which would end the
/// program's capture; `who` begins the message.
TORCHTAP_API void expect_no_capture(const c10::Device& device, const char* who);

using Capturing = bool (*)(const c10::Device& device);
/// For tests, where there is no device: the function that is asked in its place; null for none. Returns the
/// former function.
TORCHTAP_API Capturing set_capturing(Capturing asked) noexcept;

}  // namespace torchtap::base
