#pragma once

/// Includes all public headers of views/stream/.

#include <torchtap/views/stream/frame.hpp>
#include <torchtap/views/stream/publisher.hpp>
#include <torchtap/views/stream/reader.hpp>
#include <torchtap/views/stream/subscription.hpp>
