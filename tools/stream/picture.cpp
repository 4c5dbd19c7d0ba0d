#include "picture.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace torchtap::stream {
namespace {

using Colour = std::array<std::uint8_t, 3>;
using Map = std::array<Colour, 256>;

std::uint8_t byte(double value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
}

/// Viridis, as polynomials by Matt Zucker (public domain).
Map make_viridis() {
  constexpr double kTerms[7][3] = {
      {0.2777273272, 0.0054073445, 0.3340998053},   {0.1050930431, 1.4046135300, 1.3845901621},
      {-0.3308618287, 0.2148475595, 0.0950951630},  {-4.6342304990, -5.7991009730, -19.3324409563},
      {6.2282699363, 14.1799333668, 56.6905526007}, {4.7763849976, -13.7451453777, -65.3530326334},
      {-5.4354558559, 4.6458526122, 26.3124352496}};
  Map map{};
  for (std::size_t i = 0; i < map.size(); ++i) {
    const double t = static_cast<double>(i) / 255;
    for (std::size_t channel = 0; channel < 3; ++channel) {
      double value = 0;
      for (std::size_t k = 7; k-- > 0;) value = value * t + kTerms[k][channel];
      map[i][channel] = byte(value * 255 + 0.5);
    }
  }
  return map;
}

/// Blue below 0, white at 0, red above.
Map make_diverging() {
  Map map{};
  for (std::size_t i = 0; i < map.size(); ++i) {
    const double side = static_cast<double>(i) / 127.5 - 1;
    const double far = std::abs(side);
    map[i] = {byte(255 * (side < 0 ? 1 - far : 1 - 0.3 * far)), byte(255 * (1 - far)),
              byte(255 * (side > 0 ? 1 - far : 1 - 0.3 * far))};
  }
  return map;
}

constexpr Colour kNan{255, 0, 255};
constexpr Colour kInfinite{255, 0, 0};

/// The colours of values in a range.
class Painter {
 public:
  explicit Painter(const Range& range) : map_(range.diverges() ? diverging() : viridis()) {
    const double far = std::max(std::abs(range.low()), std::abs(range.high()));
    low_ = range.diverges() ? -far : range.low();
    const double high = range.diverges() ? far : range.high();
    scale_ = high > low_ ? 255 / (high - low_) : 0;
  }
  const Colour& of(double value) const {
    if (std::isnan(value)) return kNan;
    if (std::isinf(value)) return kInfinite;
    return map_[static_cast<std::size_t>(std::clamp((value - low_) * scale_, 0.0, 255.0))];
  }

 private:
  static const Map& viridis() {
    static const Map map = make_viridis();
    return map;
  }
  static const Map& diverging() {
    static const Map map = make_diverging();
    return map;
  }

  const Map& map_;
  double low_ = 0, scale_ = 0;
};

at::Tensor plain(const at::Tensor& tensor) {
  return (tensor.is_complex() ? tensor.abs() : tensor).to(at::kDouble).contiguous();
}

/// [C, H, W] of a tensor that has maps.
at::Tensor maps_of(const at::Tensor& tensor) {
  const at::Tensor real = plain(tensor);
  if (real.dim() == 2) return real.unsqueeze(0);
  return real.dim() == 4 ? real.select(0, 0).contiguous() : real;
}

/// How maps are laid out.
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
    grid.columns = std::clamp<std::size_t>(width / (grid.width + 1), 1, count);
    grid.rows = (count + grid.columns - 1) / grid.columns;
    const bool fits = grid.width <= width && grid.rows * (grid.height + 1) <= height + 1;
    if (fits || (grid.down >= most && grid.width <= width && grid.height <= height) ||
        (grid.width == 1 && grid.height == 1))
      break;
  }
  while (grid.down == 1) {  // magnified while there is room
    const std::size_t up = grid.up + 1;
    const std::size_t columns = std::clamp<std::size_t>(width / (w * up + 1), 1, count);
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

/// The mean of the values under a pixel; of one that is not finite, that one.
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

void Range::widen(const at::Tensor& values) {
  const at::Tensor all = plain(values);
  const double* const begin = all.data_ptr<double>();
  std::vector<double> finite;
  finite.reserve(static_cast<std::size_t>(all.numel()));
  std::copy_if(begin, begin + all.numel(), std::back_inserter(finite),
               [](double value) { return std::isfinite(value); });
  if (finite.empty()) return;
  const auto quantile = [&](double q) {
    const auto index = static_cast<std::ptrdiff_t>(std::lround(q * static_cast<double>(finite.size() - 1)));
    std::nth_element(finite.begin(), finite.begin() + index, finite.end());
    return finite[static_cast<std::size_t>(index)];
  };
  const double low = quantile(0.001);
  const double high = quantile(0.999);
  low_ = empty_ ? low : std::min(low_, low);
  high_ = empty_ ? high : std::max(high_, high);
  empty_ = false;
}

bool has_maps(const at::Tensor& tensor) {
  return tensor.dim() >= 2 && tensor.dim() <= 4 && tensor.numel() > 0 && tensor.size(-1) > 1 &&
         tensor.size(-2) > 1;
}

Image draw_maps(const at::Tensor& tensor, const Range& range, std::size_t width, std::size_t height,
                std::size_t& shown) {
  const at::Tensor maps = maps_of(tensor);
  const auto count = static_cast<std::size_t>(maps.size(0));
  const auto h = static_cast<std::size_t>(maps.size(1));
  const auto w = static_cast<std::size_t>(maps.size(2));
  const Grid grid = grid_of(count, h, w, width, height);
  shown = std::min(count, grid.columns * grid.rows);
  const Painter painter(range);
  Image image(grid.columns * (grid.width + 1) - 1, grid.rows * (grid.height + 1) - 1);
  for (std::size_t i = 0; i < shown; ++i) {
    const double* const map = maps.data_ptr<double>() + i * h * w;
    const std::size_t left = i % grid.columns * (grid.width + 1);
    const std::size_t top = i / grid.columns * (grid.height + 1);
    for (std::size_t y = 0; y < grid.height; ++y) {
      for (std::size_t x = 0; x < grid.width; ++x) {
        const Colour& colour = painter.of(value_under(map, h, w, x, y, grid));
        std::copy(colour.begin(), colour.end(), image.at(left + x, top + y));
      }
    }
  }
  return image;
}

std::vector<std::string> half_blocks(const Image& image) {
  std::vector<std::string> lines;
  char escape[64];
  for (std::size_t y = 0; y < image.height; y += 2) {
    std::string line;
    for (std::size_t x = 0; x < image.width; ++x) {
      const std::uint8_t* const upper = image.at(x, y);
      const std::uint8_t* const lower = y + 1 < image.height ? image.at(x, y + 1) : nullptr;
      std::snprintf(escape, sizeof escape, "\033[38;2;%d;%d;%dm", upper[0], upper[1], upper[2]);
      line += escape;
      if (lower != nullptr) {
        std::snprintf(escape, sizeof escape, "\033[48;2;%d;%d;%dm", lower[0], lower[1], lower[2]);
        line += escape;
      } else {
        line += "\033[49m";
      }
      line += "\u2580";
    }
    lines.push_back(line + "\033[0m");
  }
  return lines;
}

}  // namespace torchtap::stream
