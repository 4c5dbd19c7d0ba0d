#pragma once

/// Tables that fit a width.

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <set>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::views::text {

/// Columns aligned to their widest cell, as far as there is room. Escapes control characters in cells.
class TORCHTAP_API Table {
 public:
  enum class Align { left, right };
  /// The importance of columns that are never left out.
  static constexpr int kAlways = 100;
  struct Column {
    std::string title;
    Align align = Align::left;
    /// If there is no room, the least important columns are cut first, and left out first.
    int importance = kAlways;
    /// The minimal width to which cells may be cut; 0 for never. The title stays whole.
    std::size_t least = 0;
    /// Whether a cut cell keeps its end, where paths differ, instead of its beginning.
    bool keeps_end = false;
  };

  explicit Table(std::vector<Column> columns);
  /// Adds a row of one cell per column.
  void add(std::vector<std::string> cells);
  /// If there is no room, leaves out columns with the same value in all rows before any other, and states the
  /// value once in a line under the table.
  Table& folds_constant_columns(bool folds = true);
  /// Dots of cut cells in ASCII.
  Table& ascii(bool ascii = true);
  /// The blanks between columns; two unless told.
  Table& gap(std::size_t blanks);
  /// Called with the row, the column, and the text of each cell as it will be printed, blanks included.
  /// Returns the text to print, of the same width, in colour. The titles are row -1.
  using Paint = std::function<std::string(std::ptrdiff_t row, std::size_t column, const std::string& text)>;
  Table& paints(Paint paint);

  /// The width of the table with all columns.
  std::size_t width() const;
  /// Cuts and leaves out columns until the rest fits into `width`. A line under the table names the columns
  /// left out. Returns the titles of the printed columns.
  std::set<std::string> print(std::ostream& stream, std::size_t width) const;

 private:
  struct Fit;

  bool is_constant(std::size_t column) const;
  Fit fit(std::size_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  Paint paint_;
  std::size_t gap_ = 2;
  bool folds_ = false;
  bool ascii_ = false;
};

/// Prints text broken into lines between words; the lines after the first are indented. Escapes control
/// characters.
TORCHTAP_API void print_wrapped(std::ostream& stream, const std::string& text, std::size_t width);

}  // namespace torchtap::views::text
