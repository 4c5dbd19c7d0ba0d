#pragma once

/// Text in pictures.

#include <cstddef>
#include <string>

#include "image.hpp"

namespace torchtap::tools::pictures {

/// A character is 6 x 8 pixels, times `scale`, with its gaps.
inline constexpr std::size_t kCharacterWidth = 6, kCharacterHeight = 8;

/// Writes text, whose upper left corner is at (x, y). Content that does not fit is cut off. Letters outside
/// of ASCII appear as "?".
void draw_text(Image& image, std::size_t x, std::size_t y, const std::string& text,
               const Colour& colour = kForeground, std::size_t scale = 1);

}  // namespace torchtap::tools::pictures
