#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

/// What the subcommands print with.
namespace torchtap::tools {

/// Whether the locale (LC_ALL, LC_CTYPE, LANG) is one of UTF-8, so that block characters can be printed.
bool utf8_locale();

/// The shortest of up to 6 significant digits: "0.25", "1.5e-09", "nan".
std::string to_text(double value);
/// "1.5 kB", in powers of 1000.
std::string bytes_to_text(std::int64_t bytes);
/// "8x3x224x224"; "scalar" without dimensions, and "?" for a size of -1.
std::string shape_to_text(const std::vector<std::int64_t>& shape);

/// Columns aligned to their widest cell.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// One cell a column.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void print(std::ostream& stream) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Bars of `counts`, one a line, with the range of each bin and its count. `edges` has one more than
/// `counts`. Partial blocks in a UTF-8 locale, else '#'.
void print_histogram(std::ostream& stream, const std::vector<double>& counts,
                     const std::vector<double>& edges);

}  // namespace torchtap::tools
