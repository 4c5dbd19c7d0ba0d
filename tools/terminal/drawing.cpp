#include "drawing.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

#include <torchtap/views/text/units.hpp>

#include "table.hpp"
#include "terminal.hpp"

namespace torchtap::tools {
std::string sparkline(const std::vector<double>& counts, std::size_t width) {
  static const std::array<const char*, 9> blocks{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const std::array<const char*, 9> ascii{" ", ".", ":", "-", "=", "+", "*", "#", "@"};
  const std::size_t size = std::min(width, counts.size());
  std::vector<double> sums(size);
  // A bin that spans two characters counts proportionally for each.
  const double step = static_cast<double>(counts.size()) / static_cast<double>(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double from = static_cast<double>(i) * step;
    const double to = from + step;
    for (auto bin = static_cast<std::size_t>(from); bin < counts.size() && static_cast<double>(bin) < to;
         ++bin) {
      const double part =
          std::min(to, static_cast<double>(bin + 1)) - std::max(from, static_cast<double>(bin));
      sums[i] += counts[bin] * std::max(part, 0.0);
    }
  }
  const double most = sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
  std::string text;
  for (const double sum : sums) {
    std::size_t level = 0;
    if (sum > 0) level = std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(sum / most * 8)));
    text += utf8_locale() ? blocks[level] : ascii[level];
  }
  return text;
}

void print_histogram(std::ostream& stream, const std::vector<double>& counts,
                     const std::vector<double>& edges) {
  constexpr std::size_t kWidest = 50;
  constexpr std::size_t kNarrowest = 8;
  const double most = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  const auto with_bars = [&](std::size_t widest) {
    Table table({{"from", Table::Align::right},
                 {"to", Table::Align::right},
                 {"count", Table::Align::right},
                 {"", Table::Align::left}});
    for (std::size_t i = 0; i < counts.size(); ++i) {
      char count[32];
      std::snprintf(count, sizeof count, "%.0f", counts[i]);
      table.add({to_text(edges[i]), to_text(edges[i + 1]), count,
                 views::text::bar_text(most > 0 ? counts[i] / most * static_cast<double>(widest) : 0,
                                       !utf8_locale())});
    }
    return table;
  };
  const std::size_t numbers = with_bars(0).width();
  const std::size_t room = line_width() - std::min(line_width(), numbers);
  with_bars(std::clamp(room, kNarrowest, kWidest)).print(stream);
}

}  // namespace torchtap::tools
