#pragma once

#include <cstddef>
#include <string>

/// Characters of UTF-8 and their width in a terminal.
namespace torchtap::tools {

struct Character {
  std::size_t bytes;  ///< 0 if the text is not UTF-8
  char32_t code;
};
/// The character that begins at `at`.
Character character_at(const std::string& text, std::size_t at);

/// The width of `text` in columns of a terminal: two for wide characters, none for combining ones.
std::size_t width_of(const std::string& text);

/// Cuts `text` to at most `to` columns; dots replace its end or, with `keeps_end`, its beginning.
std::string cut(const std::string& text, std::size_t to, bool keeps_end = false);

}  // namespace torchtap::tools
