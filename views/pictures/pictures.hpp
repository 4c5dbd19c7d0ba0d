#pragma once

/// Includes all public headers of views/pictures/.

#include <torchtap/views/pictures/colours.hpp>
#include <torchtap/views/pictures/histogram.hpp>
#include <torchtap/views/pictures/image.hpp>
#include <torchtap/views/pictures/maps.hpp>
#include <torchtap/views/pictures/terminal.hpp>
#include <torchtap/views/pictures/text.hpp>
