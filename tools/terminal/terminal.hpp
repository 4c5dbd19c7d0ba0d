#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/views/text/units.hpp>

/// The abilities of the terminal, and numbers in readable form.
namespace torchtap::tools {

/// Whether the locale (LC_ALL, LC_CTYPE, LANG) uses UTF-8, so that block characters can be printed.
bool utf8_locale();

/// The shortest form with up to `digits` significant digits: "0.25", "1.5e-09", "nan".
std::string to_text(double value, int digits = 6);
using views::text::bytes_text;
using views::text::count_text;
using views::text::type_text;
/// "-" for no text.
inline std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}
/// "8x3x224x224"; "scalar" without dimensions, and "?" for a size of -1.
inline std::string shape_to_text(const std::vector<std::int64_t>& shape) {
  return views::text::shape_text(shape, "scalar");
}

/// The number of columns of the terminal on a descriptor; 0 if it is not a terminal or does not report its
/// size.
int terminal_columns(int descriptor);
/// The width of a line of stdout: COLUMNS if set, otherwise the terminal's. For a pipe it is the width of the
/// terminal on stderr. No limit (SIZE_MAX) for a file, or without a terminal.
std::size_t line_width();

}  // namespace torchtap::tools
