#pragma once

/// Pictures as text for a terminal.

#include <string>
#include <vector>

#include "image.hpp"

namespace torchtap::tools::pictures {

/// Lines for a terminal of 24-bit colour: a character for two pixels, one above the other.
std::vector<std::string> half_blocks(const Image& image);
/// The image for terminals that know kitty's graphics protocol, in so many columns and rows from the cursor
/// on, which does not move. It replaces the former image.
std::string kitty_graphics(const Image& image, std::size_t columns, std::size_t rows);
/// The image for terminals that know sixel graphics, pixel by pixel. Of more than 256 colours the rarer ones
/// become the nearest of the others.
std::string sixel_graphics(const Image& image);

}  // namespace torchtap::tools::pictures
