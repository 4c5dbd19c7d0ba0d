#pragma once

#include <cstddef>
#include <iosfwd>
#include <set>
#include <string>
#include <vector>

#include "terminal.hpp"

/// Tables that fit the terminal.
namespace torchtap::tools {

/// The columns that a line of stdout has: what COLUMNS says, or else the terminal; of a pipe the terminal
/// that stderr is. No limit (SIZE_MAX) for a file, and where there is no terminal.
std::size_t line_width();

struct FittedColumn {
  std::string title;
  Table::Align align = Table::Align::left;
  /// The least important columns go first where there is no room. Those of `kAlways` stay.
  int importance = kAlways;
  /// To how many characters cells may be cut; 0 for not at all.
  std::size_t least = 0;
  /// Of a cell that is cut, the end is left, in which paths differ, and not the beginning.
  bool keeps_end = false;

  static constexpr int kAlways = 100;
};

/// Prints as much of a table as `width` has room for. First go columns that have the same in all rows, then
/// cells are cut, then go the least important columns. Lines under the table say what was in all rows, and
/// which columns there was no room for. Returns the titles of the columns that the table has.
std::set<std::string> print_fitted(std::ostream& stream, const std::vector<FittedColumn>& columns,
                                   const std::vector<std::vector<std::string>>& rows, std::size_t width);

/// How wide the table is with nothing left out.
std::size_t full_width(const std::vector<FittedColumn>& columns,
                       const std::vector<std::vector<std::string>>& rows);

/// Text broken into lines between words; the lines after the first are indented.
void print_wrapped(std::ostream& stream, const std::string& text, std::size_t width);

/// One character for a bin, or for several that lie side by side: block characters in a UTF-8 locale, else
/// ASCII. At most `width` characters; a blank is no count at all.
std::string sparkline(const std::vector<double>& counts, std::size_t width);

/// `value` in `digits` significant digits: "0.1235", "1.2e-07", "nan".
std::string to_text(double value, int digits);

}  // namespace torchtap::tools
