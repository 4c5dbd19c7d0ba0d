#include "maps.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include <torchtap/base/error.hpp>

#include "plain.hpp"

namespace torchtap::tools::pictures {
namespace {

/// The layout of maps.
struct Grid {
  std::size_t columns = 1, rows = 1;
  std::size_t width = 1, height = 1;  // of a map, in pixels
  std::size_t up = 1, down = 1;       // magnified by, averaged over
};

Grid grid_of(std::size_t count, std::size_t h, std::size_t w, std::size_t width, std::size_t height) {
  Grid grid;
  // As few values as needed are averaged to show all maps, but a map stays at least four pixels wide.
  const std::size_t most = std::max<std::size_t>(1, std::min(h, w) / 4);
  for (grid.down = 1;; ++grid.down) {
    grid.width = (w + grid.down - 1) / grid.down;
    grid.height = (h + grid.down - 1) / grid.down;
    grid.columns = std::clamp<std::size_t>((width + 1) / (grid.width + 1), 1, count);
    grid.rows = (count + grid.columns - 1) / grid.columns;
    const bool fits = grid.width <= width && grid.rows * (grid.height + 1) <= height + 1;
    if (fits || (grid.down >= most && grid.width <= width && grid.height <= height) ||
        (grid.width == 1 && grid.height == 1))
      break;
  }
  while (grid.down == 1) {  // magnified while there is room
    const std::size_t up = grid.up + 1;
    const std::size_t columns = std::clamp<std::size_t>((width + 1) / (w * up + 1), 1, count);
    if (w * up > width || (count + columns - 1) / columns * (h * up + 1) > height + 1) break;
    grid.up = up;
    grid.columns = columns;
    grid.width = w * up;
    grid.height = h * up;
  }
  grid.rows = std::max<std::size_t>(
      1, std::min((count + grid.columns - 1) / grid.columns, (height + 1) / (grid.height + 1)));
  return grid;
}

/// The mean of the values under a pixel; NaN or infinity if one of them is not finite.
double value_under(const double* map, std::size_t h, std::size_t w, std::size_t x, std::size_t y,
                   const Grid& grid) {
  if (grid.down == 1) return map[y / grid.up * w + x / grid.up];
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t v = y * grid.down; v < std::min(h, (y + 1) * grid.down); ++v) {
    for (std::size_t u = x * grid.down; u < std::min(w, (x + 1) * grid.down); ++u) {
      if (!std::isfinite(map[v * w + u])) return map[v * w + u];
      sum += map[v * w + u];
      ++count;
    }
  }
  return sum / static_cast<double>(std::max<std::size_t>(count, 1));
}

}  // namespace

bool has_maps(const at::Tensor& tensor) {
  return tensor.dim() >= 2 && tensor.numel() > 0 && tensor.size(-1) > 1 && tensor.size(-2) > 1;
}

at::Tensor maps_of(const at::Tensor& tensor, std::int64_t pick) {
  TORCH_CHECK_VALUE(has_maps(tensor), "pictures::maps_of: a tensor of shape ", tensor.sizes(),
                    " has no maps; expected two dimensions or more, the last two larger than 1.");
  if (tensor.dim() < 4) return tensor.dim() == 2 ? tensor.unsqueeze(0) : tensor;
  TORCH_CHECK_VALUE(pick >= 0 && pick < tensor.size(0), "pictures::maps_of: there is no sample ", pick,
                    " in a batch of ", tensor.size(0), ".");
  return tensor.select(0, pick).reshape({-1, tensor.size(-2), tensor.size(-1)});
}

Image draw_maps(const at::Tensor& tensor, const Range& range, std::size_t width, std::size_t height,
                std::size_t& shown) {
  const at::Tensor maps = detail::plain(tensor);
  const auto count = static_cast<std::size_t>(maps.size(0));
  const auto h = static_cast<std::size_t>(maps.size(1));
  const auto w = static_cast<std::size_t>(maps.size(2));
  const Grid grid = grid_of(count, h, w, width, height);
  shown = std::min(count, grid.columns * grid.rows);
  const Palette palette(range);
  Image image(grid.columns * (grid.width + 1) - 1, grid.rows * (grid.height + 1) - 1);
  for (std::size_t i = 0; i < shown; ++i) {
    const double* const map = maps.data_ptr<double>() + i * h * w;
    const std::size_t left = i % grid.columns * (grid.width + 1);
    const std::size_t top = i / grid.columns * (grid.height + 1);
    for (std::size_t y = 0; y < grid.height; ++y) {
      for (std::size_t x = 0; x < grid.width; ++x) {
        image.set(left + x, top + y, palette(value_under(map, h, w, x, y, grid)));
      }
    }
  }
  return image;
}

}  // namespace torchtap::tools::pictures
