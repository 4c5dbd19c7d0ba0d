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

/// "11,689,512".
std::string grouped(std::int64_t number);

/// How many columns the terminal behind a descriptor has; 0 if it is none, or does not say.
int terminal_columns(int descriptor);

/// Columns aligned to their widest cell. What a cell holds of control characters is escaped.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
    /// Where the terminal is narrow, cells may be cut to so many columns, the first such column first; 0:
    /// never.
    std::size_t least = 0;
    /// Where that is not enough columns are left out, the one with the largest number first; 0: never.
    int leaves = 0;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// One cell a column.
  void add(std::vector<std::string> cells);
  /// On a terminal, as wide as it is; else (a file, a pipe) whole.
  void print(std::ostream& stream) const;
  /// In at most `width` columns, as far as that can be reached; 0: whole.
  void print(std::ostream& stream, std::size_t width) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Bars of `counts`, one a line, with the range of each bin and its count. `edges` has one more than
/// `counts`. Partial blocks in a UTF-8 locale, else '#'.
void print_histogram(std::ostream& stream, const std::vector<double>& counts,
                     const std::vector<double>& edges);

}  // namespace torchtap::tools
