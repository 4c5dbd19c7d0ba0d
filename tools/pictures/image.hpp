#pragma once

/// A picture in memory.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace torchtap::tools::pictures {

/// Red, green, blue.
using Colour = std::array<std::uint8_t, 3>;

inline constexpr Colour kBackground{32, 32, 32};
inline constexpr Colour kForeground{224, 224, 224};

/// Row by row, three bytes a pixel.
struct Image {
  std::size_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;

  Image() = default;
  Image(std::size_t width, std::size_t height, const Colour& colour = kBackground);

  std::uint8_t* at(std::size_t x, std::size_t y) { return rgb.data() + 3 * (y * width + x); }
  const std::uint8_t* at(std::size_t x, std::size_t y) const { return rgb.data() + 3 * (y * width + x); }
  void set(std::size_t x, std::size_t y, const Colour& colour);
  /// Copies `image` to where its upper left corner is (x, y). Content that does not fit is cut off.
  void paste(const Image& image, std::size_t x, std::size_t y);
};

}  // namespace torchtap::tools::pictures
