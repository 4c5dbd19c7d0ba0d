#pragma once

/// Draws a run as a self-contained SVG. Takes plain numbers and returns text.

#include <cstdint>
#include <string>
#include <vector>

namespace figure {

/// Means of many columns for each row, shown as colours.
struct Heatmap {
  std::string title, columns, value;  ///< `columns` and `value` label the axis and the colours
  std::vector<std::string> row_labels, column_labels;
  std::vector<int> column_groups;          ///< the row that each column belongs to, or -1
  std::vector<std::vector<double>> cells;  ///< [row][column], not negative
};

/// The share of values in each bin.
struct Histogram {
  std::string title;
  std::vector<double> edges, shares;  ///< one edge more than shares
  std::vector<std::string> notes;
};

/// One value per step.
struct Curve {
  std::string name;
  std::vector<double> values;
};

struct Page {
  std::string title, subtitle;
  Heatmap means;
  std::string histograms_title, histograms_x, histograms_y;
  std::vector<Histogram> histograms;
  std::string curves_title, curves_x, curves_y;
  std::vector<Curve> curves;
  std::int64_t epochs = 1;  ///< the steps are divided into this many
};

std::string draw(const Page& page);

}  // namespace figure
