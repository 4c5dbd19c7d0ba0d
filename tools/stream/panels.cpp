#include "panels.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "terminal/terminal.hpp"

namespace torchtap::tools::stream {

namespace {

constexpr std::int64_t kLongest = 8;  // times as long as wide

}  // namespace

bool Panels::has_maps(const at::Tensor& tensor) const {
  if (options_.picture == "histogram" || !pictures::has_maps(tensor)) return false;
  if (tensor.dim() == 2) {  // [8, 1000] is a batch of vectors rather than a map
    const auto [less, more] = std::minmax({tensor.size(0), tensor.size(1)});
    if (more > kLongest * less) return false;
  }
  return tensor.dim() < 4 || options_.pick < tensor.size(0);
}

Panels::Panel& Panels::panel(const std::string& title) {
  const auto [found, is_first] = panels_.try_emplace(title);
  if (is_first) found->second.range = options_.range;
  return found->second;
}

void Panels::prepare(const std::string& title, const at::Tensor& tensor) {
  panel(title).range.widen(has_maps(tensor) ? pictures::maps_of(tensor, options_.pick) : tensor);
}

void Panels::add(const std::string& title, const at::Tensor& tensor, const std::string& note) {
  Panel& panel = this->panel(title);
  if (!panel.added) {
    panel.added = true;
    order_.push_back(title);
    if (drawn_ != 0) ++left_out_;
  }
  prepare(title, tensor);
  panel.maps.reset();
  if (has_maps(tensor)) {
    panel.maps = pictures::maps_of(tensor, options_.pick);
  } else {
    panel.histogram.add(tensor);
  }
  panel.note = note;
  panel.is_new = true;
}

bool Panels::is_new(const std::string& title) const {
  const auto found = panels_.find(title);
  return found != panels_.end() && found->second.is_new;
}

void Panels::draw_panel(pictures::Image& image, const std::string& title, const Panel& panel, std::size_t x,
                        std::size_t y, std::size_t width, std::size_t height) const {
  const std::size_t scale = std::max<std::size_t>(1, options_.height / 360);
  const std::size_t line = (pictures::kCharacterHeight + 2) * scale;
  if (height < 2 * line + 8 || width < 16) return;
  const std::size_t letter = pictures::kCharacterWidth * scale;
  pictures::Image box(width, height);
  pictures::draw_text(box, 0, 0, title.empty() ? "(root)" : title, {255, 255, 255}, scale);
  const pictures::Palette palette(panel.range);
  const bool maps = panel.maps.defined();
  const double low = maps ? palette.low() : panel.range.low();
  const double high = maps ? palette.high() : panel.range.high();
  const std::string from = tools::to_text(low, 3) + " ";
  const std::string to = " " + tools::to_text(high, 3);
  // The range: the colours of maps, and of a histogram from bottom to top.
  std::size_t at = 0;
  std::string rest;
  if (maps) {
    pictures::draw_text(box, 0, line, from, pictures::kForeground, scale);
    at = from.size() * letter;
    const std::size_t bar = std::min<std::size_t>(64 * scale, width / 4);
    for (std::size_t u = 0; u < bar && at + u < width; ++u) {
      for (std::size_t v = 0; v < 7 * scale; ++v)
        box.set(at + u, line + v,
                palette(low + (high - low) * static_cast<double>(u) / static_cast<double>(bar)));
    }
    at += bar;
    rest = to + "   ";
  } else {
    rest = from + ".." + to + "   ";
  }
  std::size_t shown = 0;
  const std::size_t room = height - 2 * line;
  pictures::Image drawn;
  if (maps) {
    drawn = pictures::draw_maps(panel.maps, panel.range, width, room, shown);
    if (static_cast<std::int64_t>(shown) < panel.maps.size(0))
      rest += std::to_string(shown) + " of " + std::to_string(panel.maps.size(0)) + " maps   ";
  } else {
    drawn = panel.histogram.draw(panel.range, width, room);
  }
  pictures::draw_text(box, at, line, rest + panel.note, pictures::kForeground, scale);
  box.paste(drawn, 0, 2 * line);
  image.paste(box, x, y);
}

pictures::Image Panels::draw(const std::string& text) {
  if (drawn_ == 0) drawn_ = order_.size();
  pictures::Image image(options_.width, options_.height);
  const std::size_t scale = std::max<std::size_t>(1, options_.height / 360);
  const std::size_t gap = 4 * scale;
  const std::size_t top = text.empty() ? gap : (pictures::kCharacterHeight + 6) * scale;
  pictures::draw_text(image, gap, gap, text, {255, 224, 128}, scale);
  // As near to squares as the number allows.
  const double shape = static_cast<double>(options_.width) / static_cast<double>(options_.height - top);
  const std::size_t columns = std::clamp<std::size_t>(
      static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(drawn_) * shape / 1.4))), 1,
      std::max<std::size_t>(drawn_, 1));
  const std::size_t rows = (drawn_ + columns - 1) / columns;
  const std::size_t width = (options_.width - gap) / columns;
  const std::size_t height = rows == 0 ? 0 : (options_.height - top) / rows;
  for (std::size_t i = 0; i < drawn_; ++i) {
    Panel& panel = panels_[order_[i]];
    draw_panel(image, order_[i], panel, gap + i % columns * width, top + i / columns * height, width - gap,
               height > gap ? height - gap : 0);
    panel.is_new = false;
  }
  return image;
}

}  // namespace torchtap::tools::stream
