#include "histogram.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "plain.hpp"

namespace torchtap::tools::pictures {

void HistogramOverTime::add(const at::Tensor& values) {
  const at::Tensor all = detail::plain(values);
  const double* const begin = all.data_ptr<double>();
  const double* const end = begin + all.numel();
  Column column;
  column.bins.assign(kBins, 0);
  std::size_t finite = 0;
  for (const double* value = begin; value != end; ++value) {
    column.nan = column.nan || std::isnan(*value);
    column.infinite = column.infinite || std::isinf(*value);
    if (!std::isfinite(*value)) continue;
    column.low = finite == 0 ? *value : std::min(column.low, *value);
    column.high = finite == 0 ? *value : std::max(column.high, *value);
    ++finite;
  }
  const double scale = column.high > column.low ? static_cast<double>(kBins) / (column.high - column.low) : 0;
  for (const double* value = begin; value != end; ++value) {
    if (!std::isfinite(*value)) continue;
    const auto bin = static_cast<std::size_t>((*value - column.low) * scale);
    column.bins[std::min(bin, kBins - 1)] += 1.0F / static_cast<float>(finite);
  }
  if (in_last_ % each_ == 0) {
    columns_.push_back(std::move(column));
    in_last_ = 1;
  } else {
    columns_.back() = merged(columns_.back(), column);
    ++in_last_;
  }
  if (columns_.size() <= kMostColumns) return;
  std::vector<Column> half;
  for (std::size_t i = 0; i + 1 < columns_.size(); i += 2)
    half.push_back(merged(columns_[i], columns_[i + 1]));
  if (columns_.size() % 2 == 1) half.push_back(columns_.back());
  in_last_ = columns_.size() % 2 == 1 ? in_last_ : 2 * each_;
  columns_ = std::move(half);
  each_ *= 2;
}

/// The share of the values from `low` to `high`, as if the values of a bin were evenly spread.
float HistogramOverTime::share_between(const Column& column, double low, double high) {
  const double width = (column.high - column.low) / static_cast<double>(kBins);
  if (width <= 0) {  // all values are the same
    float all = 0;
    for (const float bin : column.bins) all += bin;
    return column.low >= low && column.low < high ? all : 0;
  }
  const double from = std::max((low - column.low) / width, 0.0);
  const double to = std::min((high - column.low) / width, static_cast<double>(kBins));
  float share = 0;
  for (auto bin = static_cast<std::size_t>(from); static_cast<double>(bin) < to; ++bin) {
    const double inside =
        std::min(to, static_cast<double>(bin) + 1) - std::max(from, static_cast<double>(bin));
    share += column.bins[bin] * static_cast<float>(inside);
  }
  return share;
}

HistogramOverTime::Column HistogramOverTime::merged(const Column& a, const Column& b) {
  Column both;
  both.low = std::min(a.low, b.low);
  both.high = std::max(a.high, b.high);
  both.nan = a.nan || b.nan;
  both.infinite = a.infinite || b.infinite;
  both.bins.assign(kBins, 0);
  const double width = (both.high - both.low) / static_cast<double>(kBins);
  for (std::size_t i = 0; i < kBins; ++i) {
    const double low = both.low + static_cast<double>(i) * width;
    const double high = i + 1 == kBins ? std::nextafter(both.high, HUGE_VAL) : low + width;
    both.bins[i] = (share_between(a, low, high) + share_between(b, low, high)) / 2;
    if (width <= 0) break;  // both have one value, which is the same
  }
  return both;
}

Image HistogramOverTime::draw(const Range& range, std::size_t width, std::size_t height) const {
  Image image(width, height, viridis(0));
  if (columns_.empty() || height < 3) return image;
  const double span = range.high() > range.low() ? range.high() - range.low() : 1;
  const double step = span / static_cast<double>(height);
  const double middle = (range.high() + range.low()) / 2;
  std::vector<Colour> drawn(height);
  std::size_t last = columns_.size();
  for (std::size_t x = 0; x < width; ++x) {
    const std::size_t index = x * columns_.size() / width;
    const Column& column = columns_[index];
    if (index != last) {
      for (std::size_t y = 0; y < height; ++y) {
        const double low = middle + span / 2 - static_cast<double>(y + 1) * step;
        // The root shows rare values beside frequent ones. Eight times as much as if all values were evenly
        // spread is the brightest.
        const float density = share_between(column, low, low + step) * static_cast<float>(height);
        drawn[y] = viridis(std::sqrt(std::min(1.0F, density / 8)));
      }
      if (column.nan) drawn[0] = drawn[1] = kNan;
      if (column.infinite) drawn[height - 1] = drawn[height - 2] = kInfinite;
      last = index;
    }
    for (std::size_t y = 0; y < height; ++y) image.set(x, y, drawn[y]);
  }
  return image;
}

}  // namespace torchtap::tools::pictures
