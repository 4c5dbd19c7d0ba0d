#pragma once

/// The frames that a stream consists of.

#include <torchtap/views/frames/frame.hpp>

namespace torchtap::views::stream {

using namespace frames;  // NOLINT: a frame of a stream has the same names here and there

}  // namespace torchtap::views::stream
