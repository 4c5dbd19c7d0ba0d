#include "image.hpp"

#include <algorithm>

namespace torchtap::tools::pictures {

Image::Image(std::size_t width, std::size_t height, const Colour& colour)
    : width(width), height(height), rgb(3 * width * height) {
  for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = colour[i % 3];
}

void Image::set(std::size_t x, std::size_t y, const Colour& colour) {
  std::copy(colour.begin(), colour.end(), at(x, y));
}

void Image::paste(const Image& image, std::size_t x, std::size_t y) {
  if (x >= width) return;
  const std::size_t columns = std::min(image.width, width - x);
  for (std::size_t row = 0; row < image.height && y + row < height; ++row)
    std::copy_n(image.at(0, row), 3 * columns, at(x, y + row));
}

}  // namespace torchtap::tools::pictures
