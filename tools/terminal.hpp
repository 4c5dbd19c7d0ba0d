#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What the terminal can show, and numbers as people read them.
namespace torchtap::tools {

/// Whether the locale (LC_ALL, LC_CTYPE, LANG) is one of UTF-8, so that block characters can be printed.
bool utf8_locale();

/// The shortest of up to `digits` significant digits: "0.25", "1.5e-09", "nan".
std::string to_text(double value, int digits = 6);
/// "1.5 kB", in powers of 1000.
std::string bytes_to_text(std::int64_t bytes);
/// "8x3x224x224"; "scalar" without dimensions, and "?" for a size of -1.
std::string shape_to_text(const std::vector<std::int64_t>& shape);

/// "11,689,512".
std::string grouped(std::int64_t number);

/// How many columns the terminal behind a descriptor has; 0 if it is none, or does not say.
int terminal_columns(int descriptor);

}  // namespace torchtap::tools
