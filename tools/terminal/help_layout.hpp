#pragma once

#include <cstddef>
#include <string>

/// Fits --help to the terminal. Knows neither CLI11 nor LibTorch.
namespace torchtap::tools {

/// The columns of a line of help: as many as the terminal has, from 40 to 80.
std::size_t help_width();

/// In help that is not laid out, a line "\vNAME\vDESCRIPTION" is an option or a command, and "\f" begins the
/// text at its end; other lines stay as they are.
inline constexpr char kHelpEntry = '\v';
inline constexpr char kHelpFooter = '\f';

/// `help` in lines of at most so many columns, where words allow it.
///
/// In the text at the end, lines that begin with a blank are examples, which are broken as a shell takes
/// them, and tables; others are paragraphs.
std::string laid_out(const std::string& help, std::size_t columns);

}  // namespace torchtap::tools
