#pragma once

#include <cstddef>
#include <iosfwd>
#include <set>
#include <string>
#include <vector>

/// Tables that fit the terminal.
namespace torchtap::tools {

/// The columns that a line of stdout has: what COLUMNS says, or else the terminal; of a pipe the terminal
/// that stderr is. No limit (SIZE_MAX) for a file, and where there is no terminal.
std::size_t line_width();

/// Columns aligned to their widest cell, as much of them as there is room for. Control characters in cells
/// are escaped.
class Table {
 public:
  enum class Align { left, right };
  /// The importance of columns that stay.
  static constexpr int kAlways = 100;
  struct Column {
    std::string title;
    Align align = Align::left;
    /// Where there is no room, the least important columns are cut, and left out, first.
    int importance = kAlways;
    /// To how many columns of the terminal cells may be cut; 0 for not at all. The title stays whole.
    std::size_t least = 0;
    /// Of a cell that is cut, the end is left, in which paths differ, and not the beginning.
    bool keeps_end = false;
  };

  explicit Table(std::vector<Column> columns);
  /// One cell a column.
  void add(std::vector<std::string> cells);
  /// Where there is no room, columns that have the same in all rows go before any other, and a line under the
  /// table says it once.
  Table& folds_constant_columns(bool folds = true);

  /// How wide the table is with nothing left out.
  std::size_t width() const;
  /// Leaves out columns until the others, cut as far as they may be, fit into `width`. A line under the table
  /// says which there was no room for. Returns the titles of those that are there.
  std::set<std::string> print(std::ostream& stream, std::size_t width = line_width()) const;

 private:
  struct Fit;

  bool is_constant(std::size_t column) const;
  Fit fit(std::size_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  bool folds_ = false;
};

/// Text broken into lines between words; the lines after the first are indented. Control characters are
/// escaped.
void print_wrapped(std::ostream& stream, const std::string& text, std::size_t width = line_width());

}  // namespace torchtap::tools
