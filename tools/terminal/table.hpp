#pragma once

#include <cstddef>
#include <iosfwd>
#include <set>
#include <string>
#include <vector>

#include <torchtap/views/text/table.hpp>

#include "terminal.hpp"

/// Tables that fit the terminal.
namespace torchtap::tools {

/// A table of the command: as wide as a line, and in ASCII unless the locale uses UTF-8.
class Table : public views::text::Table {
 public:
  explicit Table(std::vector<Column> columns);
  std::set<std::string> print(std::ostream& stream, std::size_t width = line_width()) const {
    return views::text::Table::print(stream, width);
  }
};

/// Prints text broken into lines between words; the lines after the first are indented. Escapes control
/// characters.
inline void print_wrapped(std::ostream& stream, const std::string& text, std::size_t width = line_width()) {
  views::text::print_wrapped(stream, text, width);
}

}  // namespace torchtap::tools
