#include "figure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace figure {
namespace {

/// For browsers in dark mode: the page, the words and the lines; colours that mean a value stay.
constexpr char kDark[] = R"(<style>@media (prefers-color-scheme: dark) {
rect[width="100%"] { fill: #0d1117 } text[fill="#222"] { fill: #e6edf3 } text[fill="#667"] { fill: #9aa4b2 }
[stroke="#222"] { stroke: #e6edf3 } [stroke="#667"] { stroke: #9aa4b2 } [stroke="#e6e8ee"] { stroke: #2a313c }
}</style>
)";
constexpr double kWidth = 1200, kHeight = 1000;
constexpr double kLeft = 130, kRight = 1070;  // shared by all panels
constexpr const char* kInk = "#222";
constexpr const char* kGrey = "#667";
constexpr const char* kGrid = "#e6e8ee";
constexpr std::array<const char*, 6> kColours = {"#0072b2", "#d55e00", "#009e73",
                                                 "#aa4499", "#b8860b", "#555555"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value == 0 ? 0.0 : value);  // avoid "-0"
  return text;
}

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else
      result += c;
  }
  return result;
}

/// The appearance and alignment of a text.
struct Style {
  double size = 12;
  const char* colour = kInk;
  const char* anchor = "start";
  bool bold = false;
  bool upwards = false;
};

class Svg {
 public:
  void rectangle(double x, double y, double width, double height, const std::string& fill,
                 const std::string& tooltip = "") {
    out_ << "<rect x='" << coordinate(x) << "' y='" << coordinate(y) << "' width='" << coordinate(width)
         << "' height='" << coordinate(height) << "' fill='" << fill << "'";
    if (tooltip.empty()) {
      out_ << "/>\n";
    } else {
      out_ << "><title>" << escaped(tooltip) << "</title></rect>\n";
    }
  }
  void line(double x1, double y1, double x2, double y2, const std::string& colour, const char* dashes = "") {
    out_ << "<path d='M" << coordinate(x1) << " " << coordinate(y1) << "L" << coordinate(x2) << " "
         << coordinate(y2) << "' stroke='" << colour << "' fill='none'";
    if (*dashes != 0) out_ << " stroke-dasharray='" << dashes << "'";
    out_ << "/>\n";
  }
  void path(const std::vector<std::pair<double, double>>& points, const std::string& colour, double width,
            double opacity, const std::string& fill = "none") {
    out_ << "<path d='";
    for (std::size_t i = 0; i < points.size(); ++i) {
      out_ << (i == 0 ? "M" : "L") << coordinate(points[i].first) << " " << coordinate(points[i].second);
    }
    out_ << "' fill='" << fill << "' stroke='" << colour << "' stroke-width='" << coordinate(width)
         << "' stroke-opacity='" << number(opacity) << "' stroke-linejoin='round'/>\n";
  }
  void text(double x, double y, const std::string& text, const Style& style = {}) {
    out_ << "<text x='" << coordinate(x) << "' y='" << coordinate(y) << "' font-size='" << number(style.size)
         << "' fill='" << style.colour << "' text-anchor='" << style.anchor << "'";
    if (style.bold) out_ << " font-weight='600'";
    if (style.upwards) out_ << " transform='rotate(-90 " << coordinate(x) << " " << coordinate(y) << ")'";
    out_ << ">" << escaped(text) << "</text>\n";
  }
  std::string str() const {
    std::ostringstream all;
    all << "<svg xmlns='http://www.w3.org/2000/svg' width='" << kWidth << "' height='" << kHeight
        << "' viewBox='0 0 " << kWidth << " " << kHeight
        << "' font-family='\"Helvetica Neue\", Helvetica, Arial, \"Liberation Sans\", \"DejaVu Sans\", "
           "sans-serif'>\n"
        << kDark << "<rect width='100%' height='100%' fill='white'/>\n"
        << out_.str() << "</svg>\n";
    return all.str();
  }

 private:
  std::ostringstream out_;
};

/// Maps values to a range of page coordinates.
struct Axis {
  double from, to;    // values
  double begin, end;  // coordinates
  bool logarithmic = false;

  double operator()(double value) const {
    const auto place = [&](double v) { return logarithmic ? std::log10(v) : v; };
    const double part = (place(value) - place(from)) / (place(to) - place(from));
    return begin + std::clamp(part, 0.0, 1.0) * (end - begin);
  }

  /// About `wanted` round values.
  std::vector<double> ticks(int wanted) const {
    std::vector<double> result;
    if (logarithmic) {
      const bool fine = std::log10(to / from) < 2.5;  // 1, 2, 5 in each decade; otherwise only decades
      for (double decade = std::floor(std::log10(from)); decade <= std::log10(to); ++decade) {
        for (const double digit : fine ? std::vector<double>{1, 2, 5} : std::vector<double>{1}) {
          const double tick = digit * std::pow(10, decade);
          if (tick >= from * 0.999 && tick <= to * 1.001) result.push_back(tick);
        }
      }
      return result;
    }
    const double rough = (to - from) / wanted;
    const double decade = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * decade;
    for (const double digit : {5.0, 2.0, 1.0}) {
      if (digit * decade >= rough) step = digit * decade;
    }
    for (double k = std::ceil(from / step - 1e-9); k * step <= to + 1e-9 * step; ++k)
      result.push_back(k * step);
    return result;
  }
};

/// From pale yellow for 0 to dark blue for 1 (ColorBrewer's YlGnBu).
std::string shade(double part) {
  static constexpr std::array<std::array<int, 3>, 9> stops = {{{255, 255, 217},
                                                               {237, 248, 177},
                                                               {199, 233, 180},
                                                               {127, 205, 187},
                                                               {65, 182, 196},
                                                               {29, 145, 192},
                                                               {34, 94, 168},
                                                               {37, 52, 148},
                                                               {8, 29, 88}}};
  const double place = std::clamp(part, 0.0, 1.0) * (stops.size() - 1);
  const auto i = std::min<std::size_t>(static_cast<std::size_t>(place), stops.size() - 2);
  char text[8];
  std::array<int, 3> rgb;
  for (std::size_t c = 0; c < 3; ++c) {
    rgb[c] = static_cast<int>(std::lround(stops[i][c] + (place - i) * (stops[i + 1][c] - stops[i][c])));
  }
  std::snprintf(text, sizeof text, "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
  return text;
}

void draw_heatmap(Svg& svg, const Heatmap& map, double top) {
  const double height = 23 * static_cast<double>(map.cells.size());
  const double cell = (kRight - kLeft) / static_cast<double>(map.column_labels.size());
  double most = 0;
  for (const auto& row : map.cells) most = std::max(most, *std::max_element(row.begin(), row.end()));
  if (most == 0) most = 1;

  svg.text(kLeft, top - 14, map.title, {15, kInk, "start", true});
  for (std::size_t r = 0; r < map.cells.size(); ++r) {
    const double y = top + 23 * static_cast<double>(r);
    svg.text(kLeft - 8, y + 16, map.row_labels[r], {12, kInk, "end"});
    for (std::size_t c = 0; c < map.cells[r].size(); ++c) {
      const double value = map.cells[r][c];
      svg.rectangle(kLeft + cell * static_cast<double>(c), y, cell - 0.6, 22.4, shade(value / most),
                    map.row_labels[r] + ", unit " + map.column_labels[c] + ": " + number(value));
    }
  }
  for (std::size_t c = 0, end = 0; c < map.column_groups.size(); c = end) {  // a frame around each group
    for (end = c; end < map.column_groups.size() && map.column_groups[end] == map.column_groups[c];) ++end;
    if (map.column_groups[c] < 0) continue;
    const double left = kLeft + cell * static_cast<double>(c) - 0.3,
                 y = top + 23 * map.column_groups[c] - 0.3;
    const double right = kLeft + cell * static_cast<double>(end) - 0.3;
    svg.path({{left, y}, {right, y}, {right, y + 23}, {left, y + 23}, {left, y}}, kInk, 1.4, 1);
  }
  for (std::size_t c = 0; c < map.column_labels.size(); ++c) {
    svg.text(kLeft + cell * (static_cast<double>(c) + 0.5), top + height + 12, map.column_labels[c],
             {9, kGrey, "middle"});
  }
  svg.text((kLeft + kRight) / 2, top + height + 32, map.columns, {12, kGrey, "middle"});

  const Axis colours{0, most, top + height, top};
  const double x = kRight + 22;
  for (int i = 0; i < 100; ++i)
    svg.rectangle(x, top + height * (99 - i) / 100, 14, height / 100 + 0.5, shade(i / 99.0));
  for (const double tick : colours.ticks(5)) {
    svg.line(x + 14, colours(tick), x + 18, colours(tick), kGrey);
    svg.text(x + 22, colours(tick) + 4, number(tick), {11, kGrey});
  }
  svg.text(x + 62, top + height / 2, map.value, {12, kGrey, "middle", false, true});
}

/// Draws frame, grid and labels of a panel with two axes.
void draw_axes(Svg& svg, const Axis& x, const Axis& y, int x_ticks, bool percent) {
  for (const double tick : y.ticks(5)) {
    svg.line(x.begin, y(tick), x.end, y(tick), kGrid);
    svg.text(x.begin - 8, y(tick) + 4, percent ? number(100 * tick) + " %" : number(tick),
             {11, kGrey, "end"});
  }
  for (const double tick : x.ticks(x_ticks)) {
    svg.line(x(tick), y.begin, x(tick), y.begin + 4, kGrey);
    svg.text(x(tick), y.begin + 17, number(tick), {11, kGrey, "middle"});
  }
  svg.line(x.begin, y.begin, x.end, y.begin, kGrey);
}

void draw_histograms(Svg& svg, const Page& page, double top) {
  constexpr double kPlot = 180, kGap = 70;
  const auto count = static_cast<double>(page.histograms.size());
  const double width = (kRight - kLeft - kGap * (count - 1)) / count;
  double least = 1, most = 0;
  for (const auto& histogram : page.histograms) {
    for (const double share : histogram.shares) {
      if (share > 0) least = std::min(least, share);
      most = std::max(most, share);
    }
  }
  if (most == 0) most = 1;
  // One scale of decades for all; shares below one in a million are not drawn.
  const double low = std::pow(10, std::floor(std::log10(std::max(least, 1e-6))));
  const double high = std::max(10 * low, std::pow(10, std::ceil(std::log10(most))));

  svg.text(kLeft, top - 34, page.histograms_title, {15, kInk, "start", true});
  svg.text(kLeft - 72, top + kPlot / 2, page.histograms_y, {12, kGrey, "middle", false, true});
  for (std::size_t i = 0; i < page.histograms.size(); ++i) {
    const auto& histogram = page.histograms[i];
    const double left = kLeft + (width + kGap) * static_cast<double>(i);
    std::size_t used = histogram.shares.size();
    while (used > 1 && histogram.shares[used - 1] == 0) --used;
    const Axis x{histogram.edges[0], histogram.edges[used], left, left + width};
    const Axis y{low, high, top + kPlot, top, true};
    draw_axes(svg, x, y, 5, true);
    std::vector<std::pair<double, double>> outline = {{x.begin, y.begin}};
    for (std::size_t bin = 0; bin < used; ++bin) {
      const double share = y(std::max(histogram.shares[bin], low));
      outline.emplace_back(x(histogram.edges[bin]), share);
      outline.emplace_back(x(histogram.edges[bin + 1]), share);
    }
    outline.emplace_back(x.end, y.begin);
    const std::string colour = kColours[i % kColours.size()];
    svg.path(outline, colour, 1.5, 1, colour + "30");
    svg.text(left, top - 10, histogram.title, {13, colour.c_str(), "start", true});
    for (std::size_t line = 0; line < histogram.notes.size(); ++line) {
      svg.text(left + width - 4, top + 13 + 14 * static_cast<double>(line), histogram.notes[line],
               {12, kInk, "end"});
    }
    svg.text(left + width / 2, top + kPlot + 36, page.histograms_x, {12, kGrey, "middle"});
  }
}

/// Averages each value with up to ten values on either side.
std::vector<double> smooth(const std::vector<double>& values) {
  std::vector<double> result;
  const auto size = static_cast<std::int64_t>(values.size());
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t first = std::max<std::int64_t>(0, i - 10), last = std::min(size - 1, i + 10);
    double sum = 0;
    for (std::int64_t k = first; k <= last; ++k) sum += values[static_cast<std::size_t>(k)];
    result.push_back(sum / static_cast<double>(last - first + 1));
  }
  return result;
}

void draw_curves(Svg& svg, const Page& page, double top) {
  constexpr double kPlot = 200;
  double least = 1e300, most = 0;
  std::size_t steps = 2;
  for (const auto& curve : page.curves) {
    steps = std::max(steps, curve.values.size());
    for (const double value : curve.values) {
      if (value > 0) least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  if (most == 0) least = most = 1;
  const Axis x{1, static_cast<double>(steps), kLeft, kRight};
  const Axis y{least / 1.1, most * 1.1, top + kPlot, top, true};

  svg.text(kLeft, top - 14, page.curves_title, {15, kInk, "start", true});
  svg.text(kLeft - 72, top + kPlot / 2, page.curves_y, {12, kGrey, "middle", false, true});
  draw_axes(svg, x, y, 10, false);
  for (std::int64_t epoch = 1; epoch < page.epochs; ++epoch) {
    const double at =
        x(static_cast<double>(steps) * static_cast<double>(epoch) / static_cast<double>(page.epochs));
    svg.line(at, top, at, top + kPlot, kGrey, "4 4");
    svg.text(at + 5, top + 12, "epoch " + std::to_string(epoch + 1), {11, kGrey});
  }
  svg.text((kLeft + kRight) / 2, top + kPlot + 36, page.curves_x, {12, kGrey, "middle"});

  const auto points = [&](const std::vector<double>& values) {
    std::vector<std::pair<double, double>> result;
    for (std::size_t i = 0; i < values.size(); ++i) {
      result.emplace_back(x(static_cast<double>(i + 1)), y(std::max(values[i], least)));
    }
    return result;
  };
  std::vector<std::pair<double, std::size_t>> ends;  // positions of the curves' names, from the top
  for (std::size_t i = 0; i < page.curves.size(); ++i) {
    svg.path(points(page.curves[i].values), kColours[i % kColours.size()], 0.8, 0.28);
  }
  for (std::size_t i = 0; i < page.curves.size(); ++i) {
    if (page.curves[i].values.empty()) continue;
    const auto line = points(smooth(page.curves[i].values));
    svg.path(line, kColours[i % kColours.size()], 2.4, 1);
    ends.emplace_back(line.back().second, i);
  }
  std::sort(ends.begin(), ends.end());
  for (std::size_t i = 1; i < ends.size(); ++i)
    ends[i].first = std::max(ends[i].first, ends[i - 1].first + 16);
  for (const auto& [at, i] : ends) {
    svg.text(kRight + 10, at + 4, page.curves[i].name, {13, kColours[i % kColours.size()], "start", true});
  }
}

}  // namespace

std::string draw(const Page& page) {
  Svg svg;
  svg.text(kLeft, 44, page.title, {23, kInk, "start", true});
  svg.text(kLeft, 68, page.subtitle, {13, kGrey});
  draw_heatmap(svg, page.means, 122);
  draw_histograms(svg, page, 472);
  draw_curves(svg, page, 744);
  return svg.str();
}

}  // namespace figure
