#pragma once

#include <cstddef>
#include <string>

/// How --help fits the terminal. Knows neither CLI11 nor LibTorch.
namespace torchtap::tools {

/// The columns of a line of help: those of the terminal, from 40 to 100.
std::size_t help_width();

/// In help that is not laid out, a line "\vNAME\vDESCRIPTION" is an option or a command, and what follows
/// "\f" is the text at its end; other lines stay as they are.
inline constexpr char kHelpEntry = '\v';
inline constexpr char kHelpFooter = '\f';

/// `help` in lines of at most so many columns, where words allow it.
///
/// In the text at the end, lines that begin with a blank are examples, which stay as they are, and tables;
/// others are paragraphs.
std::string laid_out(const std::string& help, std::size_t columns);

}  // namespace torchtap::tools
