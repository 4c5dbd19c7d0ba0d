#pragma once

/// Pictures as text for a terminal.

#include <string>
#include <vector>

#include <torchtap/core/api.hpp>
#include <torchtap/views/pictures/image.hpp>

namespace torchtap::views::pictures {

/// Lines for a terminal of 24-bit colour: a character for two pixels, one above the other.
TORCHTAP_API std::vector<std::string> half_blocks(const Image& image);

}  // namespace torchtap::views::pictures
