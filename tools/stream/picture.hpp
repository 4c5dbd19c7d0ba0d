#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Pictures of tensors.
namespace torchtap::stream {

struct Image {
  std::size_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // row by row

  Image() = default;
  Image(std::size_t width, std::size_t height) : width(width), height(height), rgb(3 * width * height, 32) {}
  std::uint8_t* at(std::size_t x, std::size_t y) { return rgb.data() + 3 * (y * width + x); }
  const std::uint8_t* at(std::size_t x, std::size_t y) const { return rgb.data() + 3 * (y * width + x); }
};

/// The values that the ends of a colour map stand for: widened by each tensor and never narrowed, so that
/// pictures that follow each other do not flicker. The outermost thousandth at either end does not count.
class Range {
 public:
  /// Takes the finite values in.
  void widen(const at::Tensor& values);
  double low() const noexcept { return low_; }
  double high() const noexcept { return high_; }
  /// Whether there are values of both signs, which a map that diverges from 0 shows.
  bool diverges() const noexcept { return low_ < 0 && high_ > 0; }

 private:
  bool empty_ = true;
  double low_ = 0, high_ = 0;
};

/// The maps of a tensor: [C, H, W], and [N, C, H, W], of which the first is taken, as a grid of C maps; [H,
/// W] as one. Whether a tensor has maps.
bool has_maps(const at::Tensor& tensor);
/// Draws them side by side with a gap of a pixel, into at most `width` x `height` pixels: larger maps are
/// averaged, smaller ones magnified, and those that find no room are left out; `shown` says how many are not.
/// NaN is magenta, an infinity red.
Image draw_maps(const at::Tensor& tensor, const Range& range, std::size_t width, std::size_t height,
                std::size_t& shown);

/// The image as text for a terminal of 24-bit colour: a character for two pixels, one above the other.
std::vector<std::string> half_blocks(const Image& image);

}  // namespace torchtap::stream
